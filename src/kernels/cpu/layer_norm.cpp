#include "kernels/simd/layer_norm.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/arrange.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/rows.h"

namespace onnxtorch {
namespace {

// A normalization of the last dimensions, which have these sizes.
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

using Normalize = decltype(LayerNormKernels::layer_norm_rows);

void compute(const float* x, float* y, int64_t rows, int64_t size, const RowAffine& affine, double eps,
             Normalize normalize) {
  share_rows(rows, size, [&](int64_t first, int64_t count) {
    normalize(x + first * size, y + first * size, count, size, affine, eps);
  });
}

at::Tensor normalized(const at::Tensor& x, const RowNorm& norm, Normalize normalize) {
  const auto data = [](const std::optional<at::Tensor>& t) { return t ? t->const_data_ptr<float>() : nullptr; };
  at::Tensor y = rows_over(x);
  const at::Tensor rows = contiguous(x);
  const int64_t size = c10::multiply_integers(norm.shape);
  compute(rows.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel() / size, size,
          {data(norm.weight), data(norm.bias)}, norm.eps, normalize);
  return y;
}

// Makes a call whose places are those of x, the weight and the bias, as far as they are there, and of the result.
std::unique_ptr<PlannedCall> planned_norm(const at::Tensor& x, const RowNorm& norm, Normalize normalize) {
  if (!fits(x, norm) || !x.is_contiguous()) return {};
  const int64_t size = c10::multiply_integers(norm.shape);
  const size_t weight = norm.weight ? 1 : 0, bias = norm.bias ? weight + 1 : 0, result = std::max(weight, bias) + 1;
  return planned(
      [=, rows = x.numel() / size, eps = norm.eps](std::span<const TensorPlace> places) {
        const auto data = [&](size_t place) { return place > 0 ? places[place].as<float>() : nullptr; };
        compute(places[0].as<float>(), places[result].as<float>(), rows, size, {data(weight), data(bias)}, eps,
                normalize);
      },
      {{.result = result, .argument = 0}});
}

at::Tensor layer_norm(const at::Tensor& x, at::IntArrayRef shape, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  const RowNorm norm{shape, weight, bias, eps};
  return fits(x, norm) ? normalized(x, norm, for_this_cpu<LayerNormKernels>().layer_norm_rows)
                       : at::layer_norm(x, shape, weight, bias, eps);
}

RowNorm rms(at::IntArrayRef shape, const std::optional<at::Tensor>& weight, std::optional<double> eps) {
  return {shape, weight, {}, eps.value_or(std::numeric_limits<float>::epsilon())};
}

at::Tensor rms_norm(const at::Tensor& x, at::IntArrayRef shape, const std::optional<at::Tensor>& weight,
                    std::optional<double> eps) {
  const RowNorm norm = rms(shape, weight, eps);
  return fits(x, norm) ? normalized(x, norm, for_this_cpu<LayerNormKernels>().rms_norm_rows)
                       : at::rms_norm(x, shape, weight, eps);
}

std::unique_ptr<PlannedCall> plan_layer_norm(const PlannedOperands& of) {
  const std::vector<int64_t> shape = of.arguments[1].toIntVector();
  const RowNorm norm{shape, of.arguments[2].toOptional<at::Tensor>(), of.arguments[3].toOptional<at::Tensor>(),
                     of.arguments[4].toDouble()};
  return planned_norm(of.tensor(0), norm, for_this_cpu<LayerNormKernels>().layer_norm_rows);
}

std::unique_ptr<PlannedCall> plan_rms_norm(const PlannedOperands& of) {
  const std::vector<int64_t> shape = of.arguments[1].toIntVector();
  const RowNorm norm = rms(shape, of.arguments[2].toOptional<at::Tensor>(), of.arguments[3].toOptional<double>());
  return planned_norm(of.tensor(0), norm, for_this_cpu<LayerNormKernels>().rms_norm_rows);
}

}  // namespace

void register_layer_norm() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("layer_norm(Tensor x, int[] shape, Tensor? weight, Tensor? bias, float eps) -> Tensor", layer_norm);
    m.def("rms_norm(Tensor x, int[] shape, Tensor? weight, float? eps) -> Tensor", rms_norm);
  });
  register_planner("onnx_torch::layer_norm", plan_layer_norm);
  register_planner("onnx_torch::rms_norm", plan_rms_norm);
}

}  // namespace onnxtorch
