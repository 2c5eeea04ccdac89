#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/cpu_tensor.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/images.h"
#include "kernels/cpu/operators.h"
#include "kernels/simd/quantized/sums.h"

namespace onnxtorch {
namespace {

// Tells whether the kernels take the images: in either layout, with sums that fit 32 bits.
bool fits(const at::Tensor& x) {
  return (is_plain(x, c10::kByte) || is_plain(x, c10::kChar)) && x.dim() >= 3 &&
         (x.is_contiguous() || lie_channels_last(x)) && images(x).size <= SumKernels::kMostNumbers;
}

template <typename T>
void compute(const Images& of, bool channels_last, const T* x, double zero_point, float* y,
             const SumKernels::Of<T>& kernels) {
  constexpr int64_t kMost = SumKernels::kMostColumns;
  const double zero_points = zero_point * static_cast<double>(of.size);
  for_channels(of, kMost, 1, [&](int64_t image, int64_t channel, int64_t count) {
    std::array<int32_t, kMost> sums;
    const int64_t at = image * of.channels + channel;
    if (channels_last) {
      kernels.add_columns(x + image * of.channels * of.size + channel, sums.data(), of.size, count, of.channels);
    } else {
      kernels.add_rows(x + at * of.size, sums.data(), count, of.size);
    }
    std::transform(sums.begin(), sums.begin() + count, y + at,
                   [&](int32_t sum) { return static_cast<float>(sum - zero_points); });
  });
}

void compute(const Images& of, bool channels_last, at::ScalarType type, const void* x, double zero_point, float* y) {
  const auto& kernels = for_this_cpu<SumKernels>();
  if (type == c10::kByte) {
    compute(of, channels_last, static_cast<const uint8_t*>(x), zero_point, y, kernels.of_uint8);
  } else {
    compute(of, channels_last, static_cast<const int8_t*>(x), zero_point, y, kernels.of_int8);
  }
}

at::Tensor image_sums(const at::Tensor& given, const std::optional<at::Tensor>& zero_point) {
  TORCH_CHECK_VALUE(given.dim() >= 3, "images have at least 3 dimensions, not ", given.dim());
  at::Tensor y = one_for_each_channel(given, c10::kFloat);
  const double zero = zero_point ? zero_point->item<double>() : 0;
  if (!fits(given)) {
    const at::Tensor steps = given.to(c10::kDouble) - zero;
    return y.copy_(steps.flatten(2).sum(-1).reshape(y.sizes()));
  }
  compute(images(given), !given.is_contiguous(), given.scalar_type(), given.const_data_ptr(), zero,
          y.mutable_data_ptr<float>());
  return y;
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0), zero_point = of.tensor(1);
  if (!fits(x) || (zero_point.defined() && (!is_plain(zero_point) || zero_point.numel() != 1))) return {};
  return planned([of_x = images(x), channels_last = !x.is_contiguous(), type = x.scalar_type(),
                  has_zero_point = zero_point.defined()](std::span<const TensorPlace> places) {
    const float zero = has_zero_point ? *places[1].as<float>() : 0;
    compute(of_x, channels_last, type, places[0].data, zero, places.back().as<float>());
  });
}

}  // namespace

void register_image_sums() {
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("image_sums(Tensor x, Tensor? zero_point) -> Tensor", image_sums); });
  register_planner("onnx_torch::image_sums", plan);
}

}  // namespace onnxtorch
