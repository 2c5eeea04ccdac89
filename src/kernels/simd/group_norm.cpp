#include "kernels/simd/group_norm.h"

namespace onnxtorch {
namespace {

// The mean is summed up from the distances to the first row: what lies far from zero would leave few digits of it.
void take_statistics(const float* x, int64_t rows, int64_t channels, float* __restrict mean, float* __restrict rest,
                     float* __restrict squares) {
  for (int64_t row = 1; row < rows; ++row) {
    for (int64_t c = 0; c < channels; ++c) rest[c] += x[row * channels + c] - x[c];
  }
  for (int64_t c = 0; c < channels; ++c) {
    const double exact = x[c] + static_cast<double>(rest[c]) / static_cast<double>(rows);
    mean[c] = static_cast<float>(exact);
    rest[c] = static_cast<float>(exact - mean[c]);
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < channels; ++c) {
      const float distance = x[row * channels + c] - mean[c];
      squares[c] += distance * distance;
    }
  }
}

void normalize(const float* x, int64_t rows, int64_t channels, const ChannelAffine& by, float* y) {
  const auto [mean, scale, bias] = by;
  for (int64_t row = 0; row < rows; ++row) {
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t i = row * channels + c;
      y[i] = (x[i] - mean[c]) * scale[c] + bias[c];
    }
  }
}

constexpr GroupNormKernels kKernels{.take_statistics = take_statistics, .normalize = normalize};

}  // namespace

const GroupNormKernels GroupNormKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
