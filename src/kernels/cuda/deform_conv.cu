#include "kernels/cuda/deform_conv.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/standard/sampling.h"

namespace onnxtorch::cuda {
namespace {

template <int kRank, typename T>
cudaError_t sample_columns_of(const Deformation& sizes, const T* x, const T* offset, const T* mask, T* columns,
                              cudaStream_t stream) {
  const int64_t count = sizes.channels * sizes.taps * sizes.images * sizes.positions;
  return for_each(count, stream, [=] __device__(int64_t i) {
    const int64_t position = i % sizes.positions;
    const int64_t image = i / sizes.positions % sizes.images;
    const int64_t tap = i / (sizes.positions * sizes.images) % sizes.taps;
    const int64_t channel = i / (sizes.positions * sizes.images * sizes.taps);
    const int64_t group = channel / (sizes.channels / sizes.offset_groups);
    const int64_t image_group_and_tap = (image * sizes.offset_groups + group) * sizes.taps + tap;

    AxisSample<T> samples[kRank];
    int64_t position_left = position, tap_left = tap;
#pragma unroll
    for (int d = kRank - 1; d >= 0; --d) {
      const SpatialAxis& axis = sizes.axes[d];
      const int64_t undeformed =
          position_left % axis.output * axis.stride - axis.pad + tap_left % axis.kernel * axis.dilation;
      const T moved = offset[(image_group_and_tap * kRank + d) * sizes.positions + position];
      samples[d] = sample_among_zeros(static_cast<T>(undeformed) + moved, axis.input);
      position_left /= axis.output;
      tap_left /= axis.kernel;
    }

    const T* pixels = x + (image * sizes.channels + channel) * sizes.pixels;
    const T scale = mask ? mask[image_group_and_tap * sizes.positions + position] : T(1);
    T sum = 0;
#pragma unroll
    for (int neighbour = 0; neighbour < 1 << kRank; ++neighbour) {
      int64_t pixel = 0, step = 1;
      T weight = scale;
#pragma unroll
      for (int d = kRank - 1; d >= 0; --d) {
        const bool high = neighbour >> (kRank - 1 - d) & 1;
        pixel += (high ? samples[d].high : samples[d].low) * step;
        weight *= high ? samples[d].high_weight : samples[d].low_weight;
        step *= sizes.axes[d].input;
      }
      sum += pixels[pixel] * weight;
    }
    columns[i] = sum;
  });
}

}  // namespace

template <typename T>
cudaError_t sample_columns(const Deformation& sizes, const T* x, const T* offset, const T* mask, T* columns,
                           cudaStream_t stream) {
  switch (sizes.rank) {
    case 1:
      return sample_columns_of<1>(sizes, x, offset, mask, columns, stream);
    case 2:
      return sample_columns_of<2>(sizes, x, offset, mask, columns, stream);
    case 3:
      return sample_columns_of<3>(sizes, x, offset, mask, columns, stream);
    case kMaxSpatialRank:
      return sample_columns_of<kMaxSpatialRank>(sizes, x, offset, mask, columns, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

template cudaError_t sample_columns(const Deformation&, const float*, const float*, const float*, float*, cudaStream_t);
template cudaError_t sample_columns(const Deformation&, const double*, const double*, const double*, double*,
                                    cudaStream_t);

}  // namespace onnxtorch::cuda
