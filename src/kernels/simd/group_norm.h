// Statistics and normalization of channels, in rows of channels or in planes of one channel each.
#pragma once

#include <cstdint>

namespace onnxtorch {

// The function of each channel's elements: (x - mean) * scale + bias.
struct ChannelAffine {
  const float *mean, *scale, *bias;
};

struct GroupNormKernels {
  // Computes the mean of each channel as a float, what that lacks, and the sum of the squares of the distances from it.
  // The last two are given as zeros.
  void (*take_statistics)(const float* x, int64_t rows, int64_t channels, float* mean, float* rest, float* squares);
  // Normalizes the channels; `y` may be `x`.
  void (*normalize)(const float* x, int64_t rows, int64_t channels, ChannelAffine by, float* y);

  // The same functions for one channel, whose elements are contiguous.
  void (*take_plane_statistics)(const float* x, int64_t count, float* mean, float* rest, float* squares);
  void (*normalize_plane)(const float* x, int64_t count, float mean, float scale, float bias, float* y);

  static const GroupNormKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
