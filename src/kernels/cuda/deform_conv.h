// DeformConv on contiguous device memory: the columns that the product with the weights takes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace onnxtorch::cuda {

constexpr int kMaxSpatialRank = 4;

struct SpatialAxis {
  int64_t input, kernel, output, pad, stride, dilation;  // the pad at the beginning
};

struct Deformation {
  int64_t images, channels, offset_groups;
  int64_t taps, positions, pixels;  // of a kernel, of an output image, of an input image
  int rank;
  SpatialAxis axes[kMaxSpatialRank];
};

// Computes the columns [channels, taps, images, positions] of x [images, channels, input...], by offset [images,
// groups, taps, rank, output...] and mask [images, groups, taps, output...], which may be null.
template <typename T>
cudaError_t sample_columns(const Deformation& sizes, const T* x, const T* offset, const T* mask, T* columns,
                           cudaStream_t stream);

}  // namespace onnxtorch::cuda
