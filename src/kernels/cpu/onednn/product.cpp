#include "kernels/cpu/onednn/product.h"

#include <ATen/ATen.h>

#include <functional>
#include <string_view>

#include "base/arrange.h"
#include "base/cpu_tensor.h"
#include "base/product_sizes.h"
#include "base/work_memory.h"
#include "kernels/cpu/onednn/primitives.h"
#include "kernels/cpu/small_products.h"

namespace onnxtorch::onednn {
namespace {

constexpr auto kFloat = dnnl::memory::data_type::f32;
constexpr int64_t kMostDims = 6;

// A function that computes result = a @ b, for the sizes and strides that it is made for; empty where ATen is faster.
using Multiply = std::function<void(float* a, float* b, float* result)>;

dnnl::memory::desc described(const at::Tensor& t) { return {t.sizes().vec(), kFloat, t.strides().vec()}; }

// Gives the tensor so many dimensions, and strides that a primitive takes: one of the last two is 1, and none is 0
// unless the size is 1.
at::Tensor with_dims(at::Tensor t, int64_t dims) {
  while (t.dim() < dims) t = t.unsqueeze(0);
  bool plain = t.stride(-1) == 1 || t.stride(-2) == 1;
  for (int64_t i = 0; i < t.dim(); ++i) plain = plain && (t.stride(i) > 0 || t.size(i) == 1);
  return plain ? t : contiguous(t);
}

bool is_matrix(const at::Tensor& t) { return is_plain(t) && t.dim() >= 2 && t.dim() <= kMostDims; }

Multiply by_small_products(const SmallProducts& small) {
  return [small](const float* a, const float* b, float* result) { small.compute(a, b, result); };
}

Multiply by_primitive(const dnnl::matmul::primitive_desc& of) {
  return [primitive = dnnl::matmul(of), a = of.src_desc(), b = of.weights_desc(), result = of.dst_desc(),
          scratchpad = of.scratchpad_desc(),
          frames = std::make_shared<Frames>()](float* of_a, float* of_b, float* of_result) {
    Call call(frames);
    call.with(DNNL_ARG_SRC, a, of_a).with(DNNL_ARG_WEIGHTS, b, of_b).with(DNNL_ARG_DST, result, of_result);
    call.run(primitive, scratchpad);
  };
}

Multiply prepared(const at::Tensor& a, const at::Tensor& b, const at::Tensor& result) {
  const auto small = SmallProducts::of(a, b);
  if (small && small->are_few()) return by_small_products(*small);
  need_memory();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc description(engine(), described(a), described(b), described(result), attributes,
                                                 /*allow_empty=*/true);
  // oneDNN's product of single matrices takes 30 ms to generate, and then some microseconds for each of a batch.
  if (small && std::string_view(description.impl_info_str()).starts_with("gemm")) return by_small_products(*small);
  return is_reference(description) ? Multiply() : by_primitive(description);
}

// Prepares the product of tensors that all have equally many dimensions.
std::shared_ptr<const Multiply> prepared_for(const at::Tensor& a, const at::Tensor& b, const at::Tensor& result) {
  static Recent<ShapeKey, Multiply> recent(256);
  const ShapeKey key = primitive_key().add_layout(a).add_layout(b).add_layout(result);
  return recent.get(key, [&] { return prepared(a, b, result); });
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (!is_matrix(a) || !is_matrix(b)) return at::matmul(a, b);
  const auto sizes = product_sizes(a.sizes(), b.sizes());
  if (!sizes) return at::matmul(a, b);
  const auto dims = static_cast<int64_t>(sizes->size());
  at::Tensor result = work_tensor(*sizes, a.scalar_type());
  const at::Tensor left = with_dims(a, dims), right = with_dims(b, dims);
  const auto multiply = prepared_for(left, right, result);
  if (!*multiply) return at::matmul(a, b);
  (*multiply)(left.data_ptr<float>(), right.data_ptr<float>(), result.data_ptr<float>());
  return result;
}

std::unique_ptr<PlannedCall> plan_product(const PlannedOperands& of) {
  const at::Tensor a = of.tensor(0), b = of.tensor(1), &result = of.results[0];
  if (!is_matrix(a) || !is_matrix(b) || !result.is_contiguous() || !product_sizes(a.sizes(), b.sizes())) return {};
  const at::Tensor left = with_dims(a, result.dim()), right = with_dims(b, result.dim());
  if (left.data_ptr() != a.data_ptr() || right.data_ptr() != b.data_ptr()) return {};
  const auto multiply = prepared_for(left, right, result);
  if (!*multiply) return {};
  return planned([multiply](std::span<const TensorPlace> places) {
    (*multiply)(places[0].as<float>(), places[1].as<float>(), places[2].as<float>());
  });
}

}  // namespace onnxtorch::onednn
