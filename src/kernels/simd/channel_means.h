// The means of channels that lie innermost in memory.
#pragma once

#include <cstdint>

namespace onnxtorch {

struct ChannelMeansKernels {
  static constexpr int64_t kMostChannels = 256;

  // Computes the mean of rows that are `stride` apart, for each of their first `size` elements, which are at most
  // kMostChannels.
  void (*mean_of_rows)(const float* x, float* y, int64_t rows, int64_t size, int64_t stride);

  static const ChannelMeansKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
