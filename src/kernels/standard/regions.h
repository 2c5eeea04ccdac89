// Regions of interest, and the pooling of their bins: RoiAlign, MaxRoiPool.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/both_sides.h"
#include "kernels/standard/sampling.h"

namespace onnxtorch {

// ---- RoiAlign

struct RoiAlignOptions {
  bool half_pixel;
  bool maximum;
  int64_t sampling_ratio;
  double spatial_scale;
};

// One axis of a region of interest: `grid` sampling points for each of the bins.
template <typename T>
struct RegionAxis {
  static constexpr int64_t kTooLarge = -1;

  T start, length, bin_length;
  int64_t grid;  // or kTooLarge
  int64_t size;  // of the image

  ONNX_TORCH_BOTH AxisSample<T> sample(int64_t bin, int64_t i) const {
    const T within = (static_cast<T>(i) + T(0.5)) * bin_length / static_cast<T>(grid);
    return sample_to_border(start + static_cast<T>(bin) * bin_length + within, size);
  }
};

template <typename T>
ONNX_TORCH_BOTH RegionAxis<T> region_axis(T begin, T end, int64_t bins, int64_t size, const RoiAlignOptions& options) {
  constexpr T kLimit = 1 << 20;
  const T scale = static_cast<T>(options.spatial_scale);
  const T shift = options.half_pixel ? T(0.5) : T(0);
  const T start = begin * scale - shift;
  T length = end * scale - shift - start;
  if (!options.half_pixel) length = std::max<T>(length, 1);
  const T bin_length = length / static_cast<T>(bins);
  const T adaptive = std::max<T>(std::ceil(bin_length), 0);
  const int64_t adaptive_grid = adaptive <= kLimit ? static_cast<int64_t>(adaptive) : RegionAxis<T>::kTooLarge;
  return {start, length, bin_length, options.sampling_ratio > 0 ? options.sampling_ratio : adaptive_grid, size};
}

struct NeverOver {
  ONNX_TORCH_BOTH bool operator()() const { return false; }
};

// Averages a bin. `ys` and `xs` are its sampling points: `.size()` of them, by their index. The bin is left off, its
// value of no use, once `is_over` says so, which is asked for each row of points: a sampling_ratio may ask for billions
// of them.
template <typename T, typename Samples, typename IsOver = NeverOver>
ONNX_TORCH_BOTH T average_of_bin(const T* image, int64_t width, const Samples& ys, const Samples& xs,
                                 const IsOver& is_over = {}) {
  if (ys.size() == 0 || xs.size() == 0) return 0;
  T sum = 0;
  for (size_t i = 0; i < ys.size() && !is_over(); ++i) {
    const AxisSample<T> y = ys[i];
    const T *low = image + y.low * width, *high = image + y.high * width;
    for (size_t j = 0; j < xs.size(); ++j) {
      const AxisSample<T> x = xs[j];
      sum += y.low_weight * (x.low_weight * low[x.low] + x.high_weight * low[x.high]) +
             y.high_weight * (x.low_weight * high[x.low] + x.high_weight * high[x.high]);
    }
  }
  return sum / static_cast<T>(ys.size() * xs.size());
}

// Gives the largest of the weighted pixels, not of the interpolated values: ONNX's own definition of "max".
template <typename T, typename Samples, typename IsOver = NeverOver>
ONNX_TORCH_BOTH T maximum_of_bin(const T* image, int64_t width, const Samples& ys, const Samples& xs,
                                 const IsOver& is_over = {}) {
  if (ys.size() == 0 || xs.size() == 0) return 0;
  T maximum = -std::numeric_limits<T>::infinity();
  for (size_t i = 0; i < ys.size() && !is_over(); ++i) {
    const AxisSample<T> y = ys[i];
    const T *low = image + y.low * width, *high = image + y.high * width;
    for (size_t j = 0; j < xs.size(); ++j) {
      const AxisSample<T> x = xs[j];
      maximum = std::max(maximum, y.low_weight * x.low_weight * low[x.low]);
      maximum = std::max(maximum, y.low_weight * x.high_weight * low[x.high]);
      maximum = std::max(maximum, y.high_weight * x.low_weight * high[x.low]);
      maximum = std::max(maximum, y.high_weight * x.high_weight * high[x.high]);
    }
  }
  return maximum;
}

// ---- MaxRoiPool

constexpr int64_t kFarthestPixel = 1 << 30;

// Gives the pixel a coordinate of a region of interest falls on; farther than kFarthestPixel, it is none.
template <typename T>
ONNX_TORCH_BOTH T scaled_pixel(T coordinate, double spatial_scale) {
  return std::round(coordinate * static_cast<T>(spatial_scale));
}

template <typename T>
ONNX_TORCH_BOTH bool is_pixel(T pixel) {
  return pixel >= T(-kFarthestPixel) && pixel <= T(kFarthestPixel);
}

struct Interval {
  int64_t begin, end;
};

// Gives the pixels of a bin where those from `first` to `last` are divided into `bins`; neighbours overlap where they
// do not divide evenly.
ONNX_TORCH_BOTH inline Interval pixels_of_bin(int64_t bin, int64_t bins, int64_t first, int64_t last, int64_t size) {
  const int64_t length = std::max<int64_t>(last - first + 1, 1);
  const int64_t begin = first + bin * length / bins;
  const int64_t end = first + ((bin + 1) * length + bins - 1) / bins;
  return {std::clamp<int64_t>(begin, 0, size), std::clamp<int64_t>(end, 0, size)};
}

template <typename T>
ONNX_TORCH_BOTH T maximum_within(const T* image, int64_t width, Interval rows, Interval columns) {
  if (rows.begin >= rows.end || columns.begin >= columns.end) return 0;
  T maximum = -std::numeric_limits<T>::infinity();
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      maximum = std::max(maximum, image[row * width + column]);
    }
  }
  return maximum;
}

}  // namespace onnxtorch
