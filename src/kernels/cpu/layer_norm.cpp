#include "kernels/simd/layer_norm.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <limits>
#include <optional>

#include "base/arrange.h"
#include "base/registered.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/rows.h"

namespace onnxtorch {
namespace {

// What normalizes the last dimensions, of these sizes.
struct RowNorm {
  at::IntArrayRef shape;
  std::optional<at::Tensor> weight, bias;
  double eps;
};

bool fits(const at::Tensor& x, const RowNorm& norm) {
  const auto dims = static_cast<int64_t>(norm.shape.size());
  const auto is_one_per_element = [&](const std::optional<at::Tensor>& t) {
    return !t || (is_plain(*t) && t->sizes() == norm.shape && t->is_contiguous());
  };
  return is_plain(x) && dims > 0 && x.dim() >= dims && x.sizes().slice(x.dim() - dims) == norm.shape &&
         is_one_per_element(norm.weight) && is_one_per_element(norm.bias);
}

at::Tensor normalized(const at::Tensor& x, const RowNorm& norm, decltype(LayerNormKernels::layer_norm_rows) normalize) {
  const auto data = [](const std::optional<at::Tensor>& t) { return t ? t->const_data_ptr<float>() : nullptr; };
  const RowAffine affine{data(norm.weight), data(norm.bias)};
  at::Tensor y = rows_over(x);
  const at::Tensor rows = contiguous(x);
  const int64_t size = c10::multiply_integers(norm.shape);
  const auto* const from = rows.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  share_rows(x.numel() / size, size, [&](int64_t first, int64_t count) {
    normalize(from + first * size, to + first * size, count, size, affine, norm.eps);
  });
  return y;
}

at::Tensor layer_norm(const at::Tensor& x, at::IntArrayRef shape, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  const RowNorm norm{shape, weight, bias, eps};
  return fits(x, norm) ? normalized(x, norm, for_this_cpu<LayerNormKernels>().layer_norm_rows)
                       : at::layer_norm(x, shape, weight, bias, eps);
}

at::Tensor rms_norm(const at::Tensor& x, at::IntArrayRef shape, const std::optional<at::Tensor>& weight,
                    std::optional<double> eps) {
  const RowNorm norm{shape, weight, {}, eps.value_or(std::numeric_limits<float>::epsilon())};
  return fits(x, norm) ? normalized(x, norm, for_this_cpu<LayerNormKernels>().rms_norm_rows)
                       : at::rms_norm(x, shape, weight, eps);
}

}  // namespace

void register_layer_norm() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("layer_norm(Tensor x, int[] shape, Tensor? weight, Tensor? bias, float eps) -> Tensor", layer_norm);
    m.def("rms_norm(Tensor x, int[] shape, Tensor? weight, float? eps) -> Tensor", rms_norm);
  });
}

}  // namespace onnxtorch
