#include "kernels/cpu/onednn/product.h"

#include <ATen/ATen.h>

#include "base/arrange.h"
#include "base/cpu_tensor.h"
#include "base/product_sizes.h"
#include "base/work_memory.h"
#include "kernels/cpu/onednn/primitives.h"

namespace onnxtorch::onednn {
namespace {

constexpr auto kFloat = dnnl::memory::data_type::f32;
constexpr int64_t kMostDims = 6;

struct PreparedProduct {
  dnnl::primitive primitive;
  dnnl::memory::desc a, b, result, scratchpad;
  std::shared_ptr<Frames> frames = std::make_shared<Frames>();
};

dnnl::memory::desc described(const at::Tensor& t) { return {t.sizes().vec(), kFloat, t.strides().vec()}; }

// With as many dimensions as asked for, and strides that a primitive takes: one of the last two is 1, none is 0 but
// where the size is 1.
at::Tensor with_dims(at::Tensor t, int64_t dims) {
  while (t.dim() < dims) t = t.unsqueeze(0);
  bool plain = t.stride(-1) == 1 || t.stride(-2) == 1;
  for (int64_t i = 0; i < t.dim(); ++i) plain = plain && (t.stride(i) > 0 || t.size(i) == 1);
  return plain ? t : contiguous(t);
}

bool is_matrix(const at::Tensor& t) { return is_plain(t) && t.dim() >= 2 && t.dim() <= kMostDims; }

PreparedProduct prepared(const at::Tensor& a, const at::Tensor& b, const at::Tensor& result) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc description(engine(), described(a), described(b), described(result), attributes,
                                                 /*allow_empty=*/true);
  if (is_reference(description)) return {};
  return {dnnl::matmul(description), description.src_desc(), description.weights_desc(), description.dst_desc(),
          description.scratchpad_desc()};
}

// For result = a @ b, all of the same number of dimensions.
std::shared_ptr<const PreparedProduct> prepared_for(const at::Tensor& a, const at::Tensor& b,
                                                    const at::Tensor& result) {
  static Recent<ShapeKey, PreparedProduct> recent(256);
  const ShapeKey key = primitive_key().add_layout(a).add_layout(b).add_layout(result);
  return recent.get(key, [&] { return prepared(a, b, result); });
}

void compute(const PreparedProduct& p, void* a, void* b, void* result) {
  Call call(p.frames);
  call.with(DNNL_ARG_SRC, p.a, a).with(DNNL_ARG_WEIGHTS, p.b, b).with(DNNL_ARG_DST, p.result, result);
  call.run(p.primitive, p.scratchpad);
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (!is_matrix(a) || !is_matrix(b)) return at::matmul(a, b);
  const auto sizes = product_sizes(a.sizes(), b.sizes());
  if (!sizes) return at::matmul(a, b);
  const auto dims = static_cast<int64_t>(sizes->size());
  at::Tensor result = work_tensor(*sizes, a.scalar_type());
  const at::Tensor left = with_dims(a, dims), right = with_dims(b, dims);
  const auto p = prepared_for(left, right, result);
  if (!p->primitive) return at::matmul(a, b);
  compute(*p, left.data_ptr(), right.data_ptr(), result.data_ptr());
  return result;
}

std::unique_ptr<PlannedCall> plan_product(const PlannedOperands& of) {
  const at::Tensor a = of.tensor(0), b = of.tensor(1), &result = of.results[0];
  if (!is_matrix(a) || !is_matrix(b) || !result.is_contiguous() || !product_sizes(a.sizes(), b.sizes())) return {};
  const at::Tensor left = with_dims(a, result.dim()), right = with_dims(b, result.dim());
  if (left.data_ptr() != a.data_ptr() || right.data_ptr() != b.data_ptr()) return {};
  const auto p = prepared_for(left, right, result);
  if (!p->primitive) return {};
  return planned([p](std::span<const Place> places) { compute(*p, places[0].data, places[1].data, places[2].data); });
}

}  // namespace onnxtorch::onednn
