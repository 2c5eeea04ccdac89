// Points between pixels, in linear interpolation: RoiAlign, DeformConv.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/both_sides.h"

namespace onnxtorch {

// The place of one sampling point along one axis: between two pixels, or nowhere, with no weight.
template <typename T>
struct AxisSample {
  int64_t low, high;
  T low_weight, high_weight;
};

// Samples an axis on which, up to one pixel outside, the pixel at the border counts.
template <typename T>
ONNX_TORCH_BOTH AxisSample<T> sample_to_border(T position, int64_t size) {
  if (!(position >= -1 && position <= static_cast<T>(size))) return {0, 0, 0, 0};
  position = std::clamp<T>(position, 0, static_cast<T>(size - 1));
  const auto low = static_cast<int64_t>(position);
  const T fraction = position - static_cast<T>(low);
  return {low, std::min(low + 1, size - 1), 1 - fraction, fraction};
}

// Samples an axis on which pixels outside are zero.
template <typename T>
ONNX_TORCH_BOTH AxisSample<T> sample_among_zeros(T position, int64_t size) {
  const bool inside = position > -1 && position < static_cast<T>(size);
  const T floor = inside ? std::floor(position) : T(0);
  const T fraction = inside ? position - floor : T(0);
  const auto low = static_cast<int64_t>(floor);
  return {std::max<int64_t>(low, 0), std::min(low + 1, size - 1), inside && low >= 0 ? 1 - fraction : T(0),
          low + 1 < size ? fraction : T(0)};
}

}  // namespace onnxtorch
