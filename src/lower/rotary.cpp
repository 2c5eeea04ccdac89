#include "lower/rotary.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/work_memory.h"
#include "lower/for_each_cpu.h"
#include "passes/pattern.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// --- The operator ----------------------------------------------------------------------------------------------------

// `y` may be `x`.
ONNX_TORCH_FOR_EACH_CPU void turn_row(const float* x, const float* cos, const float* sin, float* y, int64_t half) {
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const float first = x[i], second = x[half + i];
    y[i] = first * cos[i] - second * sin[i];
    y[half + i] = second * cos[half + i] + first * sin[half + i];
  }
}

bool has_plain_rows(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == c10::kFloat && x.layout() == c10::kStrided && x.dim() > 0 &&
         x.stride(-1) == 1;
}

at::Tensor rotary_embedding(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto is_for_rows = [&](const at::Tensor& factor) {
    return has_plain_rows(factor) && factor.size(-1) == x.size(-1) && at::is_expandable_to(factor.sizes(), x.sizes());
  };
  const bool fits = has_plain_rows(x) && x.numel() > 0 && x.size(-1) % 2 == 0 && x.is_non_overlapping_and_dense() &&
                    is_for_rows(cos) && is_for_rows(sin);
  if (!fits) {
    const int64_t half = x.size(-1) / 2;
    const at::Tensor turned = at::cat({x.narrow(-1, half, x.size(-1) - half).neg(), x.narrow(-1, 0, half)}, -1);
    return turned * sin + x * cos;
  }
  constexpr int64_t kGrain = 1 << 13;  // elements
  const at::Tensor cosines = cos.expand(x.sizes()), sines = sin.expand(x.sizes());
  const int64_t size = x.size(-1), dims = x.dim() - 1;
  const std::vector<int64_t> sizes = x.sizes().vec(), strides = x.strides().vec();
  const auto* const from = x.const_data_ptr<float>();
  const at::Tensor y = work_tensor_over(x);
  auto* const to = y.mutable_data_ptr<float>();
  at::parallel_for(0, y.numel() / size, std::max<int64_t>(1, kGrain / size), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t at = 0, at_cos = 0, at_sin = 0;
      for (int64_t d = dims - 1, rest = row; d >= 0; --d) {
        const int64_t index = rest % sizes[d];
        rest /= sizes[d];
        at += index * strides[d];
        at_cos += index * cosines.stride(d);
        at_sin += index * sines.stride(d);
      }
      turn_row(from + at, cosines.const_data_ptr<float>() + at_cos, sines.const_data_ptr<float>() + at_sin, to + at,
               size / 2);
    }
  });
  return y;
}

void register_rotary_embedding() {
  static const torch::Library library = [] {
    torch::Library m(torch::Library::FRAGMENT, "onnx_torch", {}, __FILE__, __LINE__);
    m.def("rotary_embedding(Tensor x, Tensor cos, Tensor sin) -> Tensor", rotary_embedding);
    return m;
  }();
}

// --- The pass --------------------------------------------------------------------------------------------------------

// The size of the last dimension, where it is known.
std::optional<int64_t> row_size(const jit::Value* x) {
  const auto sizes = x->type()->expectRef<c10::TensorType>().sizes();
  return sizes.size().value_or(0) > 0 ? sizes[*sizes.size() - 1] : std::nullopt;
}

// Whether the slices are the two halves, of which the end of the second may be beyond the row's.
bool are_halves(const Found& found) {
  const auto size = row_size(found["x"]);
  const auto end = found.constants.number(found["end"]);
  if (!size || *size % 2 != 0) return false;
  const double half = static_cast<double>(*size) / 2;
  return found.is("begin", 0) && found.is("half", half) && found.is("middle", half) &&
         (!end || *end >= static_cast<double>(*size)) && found.is("step", 1) && found.is("other_step", 1);
}

}  // namespace

void find_rotary_embeddings(Program& program) {
  register_rotary_embedding();
  sort_operands(program);
  const char* const pattern =
      R"(graph(%x, %cos, %sin, %dim, %begin, %half, %step, %other_dim, %middle, %end, %other_step,
                                       %cat_dim, %one):
    %same : Tensor = aten::mul(%x, %cos)
    %first : Tensor = aten::slice(%x, %dim, %begin, %half, %step)
    %second : Tensor = aten::slice(%x, %other_dim, %middle, %end, %other_step)
    %opposite : Tensor = aten::neg(%second)
    %halves : Tensor[] = prim::ListConstruct(%opposite, %first)
    %swapped : Tensor = aten::cat(%halves, %cat_dim)
    %turned : Tensor = aten::mul(%swapped, %sin)
    %y : Tensor = aten::add(%turned, %same, %one)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    const bool fits = found.is_last("dim", "x") && found.is_last("other_dim", "x") && found.is_last("cat_dim", "x") &&
                      are_halves(found) && found.is("one", 1);
    if (!fits) return nullptr;
    return graph.insert(c10::Symbol::fromQualString("onnx_torch::rotary_embedding"),
                        {found["x"], found["cos"], found["sin"]});
  });
}

}  // namespace onnxtorch
