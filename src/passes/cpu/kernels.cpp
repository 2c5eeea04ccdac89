#include <torch/csrc/jit/ir/ir.h>

#include <string_view>

#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// A script that is kept, and an operator that computes the same from the same arguments.
struct Kernel {
  std::string_view script;
  const char* name;
};

constexpr Kernel kKernels[] = {
    {"onnx_torch::divided_by_sum_of_magnitudes", "onnx_torch::normalize_rows"},
    {"onnx_torch::gather_block_quantized", "onnx_torch::gather_blocks"},
    {"onnx_torch::label_of_highest", "onnx_torch::label_of_largest"},
    {"onnx_torch::linear_attention_scan", "onnx_torch::linear_attention"},
    {"onnx_torch::linear_in_double", "onnx_torch::double_linear"},
    {"onnx_torch::pad_from_inside", "onnx_torch::pad"},
    {"onnx_torch::plain_group_query_attention", "onnx_torch::group_query_attention"},
    {"onnx_torch::resampled", "onnx_torch::resample"},
    {"onnx_torch::running_product", "onnx_torch::cumprod"},
    {"onnx_torch::running_sum", "onnx_torch::cumsum"},
    {"onnx_torch::sums_of_steps", "onnx_torch::image_sums"},
    {"onnx_torch::support_vector_scores", "onnx_torch::support_vectors"},
    {"onnx_torch::tensor_scatter", "onnx_torch::scatter_rows"},
    {"onnx_torch::top_k_by_key", "onnx_torch::top_k"},
    {"onnx_torch::top_k_by_sort", "onnx_torch::top_k"},
};

}  // namespace

void take_kernels(Program& program) {
  register_argmax();
  register_gather_blocks();
  register_group_query_attention();
  register_image_sums();
  register_l1_norm();
  register_linear_attention();
  register_padding();
  register_resample();
  register_running();
  register_support_vectors();
  register_tensor_scatter();
  register_top_k();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    for (const Kernel& kernel : kKernels) {
      if (node->kind().toQualString() == kernel.script) replace(node, kernel.name, node->inputs());
    }
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
