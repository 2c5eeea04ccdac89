#include "lower/copies.h"

#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "kernels/arrange.h"
#include "kernels/work_memory.h"
#include "passes/walk.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

at::Tensor reshape(const at::Tensor& x, at::IntArrayRef shape) {
  if (x.numel() == 0 || !x.is_cpu()) return at::reshape(x, shape);
  const at::DimVector sizes = at::infer_size_dv(shape, x.numel());
  return at::detail::computeStride(x.sizes(), x.strides(), sizes) ? x.view(sizes) : contiguous(x).view(sizes);
}

at::Tensor pixel_shuffle(const at::Tensor& x, int64_t factor) {
  const bool fits = x.is_cpu() && x.numel() > 0 && x.dim() == 4 && factor > 0 && x.size(1) % (factor * factor) == 0;
  if (!fits) return at::pixel_shuffle(x, factor);
  const int64_t channels = x.size(1) / (factor * factor), height = x.size(2), width = x.size(3);
  const std::array<int64_t, 3> parts{channels, factor, factor};
  const at::Tensor pixels = x.unflatten(1, parts).permute({0, 1, 4, 2, 5, 3});
  return contiguous(pixels).view({x.size(0), channels, height * factor, width * factor});
}

// The strides of a tensor of these sizes whose dimensions lie in memory in the order of another's.
std::vector<int64_t> strides_like(const at::Tensor& other, at::IntArrayRef sizes) {
  std::vector<int64_t> order(sizes.size()), strides(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, std::greater());
  const bool has_order =
      std::ranges::all_of(order, [&](int64_t dim) { return other.stride(dim) > 0 || other.size(dim) == 1; });
  if (has_order) std::ranges::stable_sort(order, std::less(), [&](int64_t dim) { return other.stride(dim); });
  int64_t stride = 1;
  for (const int64_t dim : order) {
    strides[dim] = stride;
    stride *= sizes[dim];
  }
  return strides;
}

at::Tensor cat(at::TensorList tensors, int64_t dim) {
  const auto fits_first = [&](const at::Tensor& t) {
    const at::Tensor& first = tensors.front();
    return t.is_cpu() && t.numel() > 0 && t.dim() == first.dim() && t.scalar_type() == first.scalar_type();
  };
  if (tensors.empty() || tensors.front().dim() == 0 || !std::ranges::all_of(tensors, fits_first))
    return at::cat(tensors, dim);
  const at::Tensor& first = tensors.front();
  dim = at::maybe_wrap_dim(dim, first.dim());
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[dim] = 0;
  for (const at::Tensor& t : tensors) {
    for (int64_t d = 0; d < t.dim(); ++d) {
      if (d != dim && t.size(d) != sizes[d]) return at::cat(tensors, dim);
    }
    sizes[dim] += t.size(dim);
  }
  constexpr int64_t kLeastElements = 1 << 14;  // for which it is worth while to look at each tensor
  if (c10::multiply_integers(sizes) < kLeastElements) return at::cat(tensors, dim);
  const at::Tensor result = work_tensor(sizes, strides_like(first, sizes), first.scalar_type());
  int64_t start = 0;
  for (const at::Tensor& t : tensors) {
    copy_into(result.narrow(dim, start, t.size(dim)), t);
    start += t.size(dim);
  }
  return result;
}

void register_copies() {
  static const torch::Library library = [] {
    torch::Library m(torch::Library::FRAGMENT, "onnx_torch", {}, __FILE__, __LINE__);
    m.def("reshape(Tensor(a) x, int[] shape) -> Tensor(a)", reshape);
    m.def("pixel_shuffle(Tensor x, int factor) -> Tensor", pixel_shuffle);
    m.def("cat(Tensor[] tensors, int dim) -> Tensor", cat);
    return m;
  }();
}

// Where a copy takes longer than to find out whether one is needed.
bool is_large(const jit::Value* value) {
  constexpr size_t kLeastElements = 1 << 12;
  const auto elements = value->type()->expectRef<c10::TensorType>().numel();
  return elements && *elements >= kLeastElements;
}

}  // namespace

void replace_copies(Program& program) {
  register_copies();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    if (node->matches("aten::cat(Tensor[] tensors, int dim=0) -> Tensor")) {
      replace(node, "onnx_torch::cat", node->inputs());
    } else if (node->matches("aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor")) {
      replace(node, "onnx_torch::pixel_shuffle", node->inputs());
    } else if (node->matches("aten::reshape(Tensor(a) self, int[] shape) -> Tensor(a)") && is_large(node->output())) {
      replace(node, "onnx_torch::reshape", node->inputs());
    }
  });
  jit::EliminateDeadCode(program.graph);
}

}  // namespace onnxtorch
