#include "kernels/simd/channel_means.h"

#include <algorithm>

namespace onnxtorch {
namespace {

void mean_of_rows(const float* x, float* y, int64_t rows, int64_t size, int64_t stride) {
  constexpr int64_t kRows = 64;  // so many rows are summed up by themselves first, which is more exact
  float sums[ChannelMeansKernels::kMostChannels] = {};
  for (int64_t first = 0; first < rows; first += kRows) {
    float part[ChannelMeansKernels::kMostChannels] = {};
    const int64_t end = std::min(first + kRows, rows);
    for (int64_t row = first; row < end; ++row) {
      for (int64_t i = 0; i < size; ++i) part[i] += x[row * stride + i];
    }
    for (int64_t i = 0; i < size; ++i) sums[i] += part[i];
  }
  for (int64_t i = 0; i < size; ++i) y[i] = sums[i] / static_cast<float>(rows);
}

constexpr ChannelMeansKernels kKernels{.mean_of_rows = mean_of_rows};

}  // namespace

const ChannelMeansKernels ChannelMeansKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
