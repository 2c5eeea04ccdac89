// RoiAlign, MaxRoiPool and NonMaxSuppression on contiguous device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/standard/regions.h"

namespace onnxtorch::cuda {

// The sizes of x [batches, channels, height, width], which is pooled to out [regions, channels, bins_y, bins_x].
struct RegionPooling {
  int64_t batches, channels, height, width;
  int64_t regions, bins_y, bins_x;
};

template <typename T>
cudaError_t roi_align(const RegionPooling& sizes, const RoiAlignOptions& options, const T* x, const T* rois,
                      const int64_t* batch_indices, T* out, cudaStream_t stream);

template <typename T>
cudaError_t max_roi_pool(const RegionPooling& sizes, double spatial_scale, const T* x, const T* rois, T* out,
                         cudaStream_t stream);

struct Selection {
  int64_t groups, classes, boxes;  // a group is a class of a batch
  int64_t limit;                   // of selected boxes in a group
  float iou_threshold;
  bool center_point_box;
};

// Selects of each group the boxes that no better one overlaps too much. `order` [groups, boxes] has the best box first;
// of them those count that are high [groups, boxes]. Writes them to selected [groups, limit], and how many they are to
// counts [groups].
cudaError_t select_boxes(const Selection& sizes, const float* boxes, const int64_t* order, const bool* high,
                         int64_t* selected, int64_t* counts, cudaStream_t stream);

}  // namespace onnxtorch::cuda
