#include "kernels/simd/group_norm.h"

#include "kernels/simd/sums.h"

namespace onnxtorch {
namespace {

// Takes the statistics of channels. The mean is summed up from the distances to the first row: what lies far from zero
// would leave few digits of it.
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

void normalize(const float* x, int64_t rows, int64_t channels, ChannelAffine by, float* y) {
  const auto [mean, scale, bias] = by;
  for (int64_t row = 0; row < rows; ++row) {
#pragma GCC ivdep
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t i = row * channels + c;
      y[i] = (x[i] - mean[c]) * scale[c] + bias[c];
    }
  }
}

void take_plane_statistics(const float* x, int64_t count, float* mean, float* rest, float* squares) {
  const float first = x[0], distances = sum_of(count, [&](int64_t i) { return x[i] - first; });
  const double exact = first + static_cast<double>(distances) / static_cast<double>(count);
  const auto center = static_cast<float>(exact);
  *mean = center;
  *rest = static_cast<float>(exact - center);
  *squares = sum_of(count, [&](int64_t i) { return (x[i] - center) * (x[i] - center); });
}

void normalize_plane(const float* x, int64_t count, float mean, float scale, float bias, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * scale + bias;
}

constexpr GroupNormKernels kKernels{.take_statistics = take_statistics,
                                    .normalize = normalize,
                                    .take_plane_statistics = take_plane_statistics,
                                    .normalize_plane = normalize_plane};

}  // namespace

const GroupNormKernels GroupNormKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
