#include "kernels/standard/detection.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "kernels/cuda/current.h"
#include "kernels/cuda/detection.h"

namespace onnxtorch::cuda {
namespace {

RegionPooling pooling(const at::Tensor& x, const at::Tensor& result) {
  return {x.size(0), x.size(1), x.size(2), x.size(3), result.size(0), result.size(2), result.size(3)};
}

void roi_align_into(at::Tensor& result, const at::Tensor& x, const at::Tensor& rois, const at::Tensor& batch_indices,
                    const RoiAlignOptions& options) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "roi_align", [&] {
    on_device_of(x, [&](cudaStream_t stream) {
      return roi_align(pooling(x, result), options, x.const_data_ptr<scalar_t>(), rois.const_data_ptr<scalar_t>(),
                       batch_indices.const_data_ptr<int64_t>(), result.mutable_data_ptr<scalar_t>(), stream);
    });
  });
}

void max_roi_pool_into(at::Tensor& result, const at::Tensor& x, const at::Tensor& rois, double spatial_scale) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "max_roi_pool", [&] {
    on_device_of(x, [&](cudaStream_t stream) {
      return max_roi_pool(pooling(x, result), spatial_scale, x.const_data_ptr<scalar_t>(),
                          rois.const_data_ptr<scalar_t>(), result.mutable_data_ptr<scalar_t>(), stream);
    });
  });
}

// Selects boxes in each class. The host must know how many are selected, to allocate the result: it waits once.
at::Tensor select_in_classes(const at::Tensor& boxes, const at::Tensor& scores, const SelectionLimits& limits,
                             bool center_point_box) {
  const int64_t batches = scores.size(0), classes = scores.size(1), count = scores.size(2);
  const Selection sizes{.groups = batches * classes,
                        .classes = classes,
                        .boxes = count,
                        .limit = std::clamp<int64_t>(limits.max_boxes, 0, count),
                        .iou_threshold = limits.iou_threshold,
                        .center_point_box = center_point_box};
  TORCH_CHECK(sizes.groups <= std::numeric_limits<int32_t>::max(), "NonMaxSuppression: ", sizes.groups,
              " classes of all batches are more than CUDA has blocks");
  const auto int64s = boxes.options().dtype(at::kLong);
  at::Tensor selected = at::empty({sizes.groups, sizes.limit}, int64s);
  at::Tensor counts = at::zeros({sizes.groups, 1}, int64s);
  if (selected.numel() > 0) {
    const at::Tensor high = limits.score_threshold ? scores.gt(*limits.score_threshold) : scores.isnan().logical_not();
    const at::Tensor order = at::argsort(scores, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
    on_device_of(boxes, [&](cudaStream_t stream) {
      return select_boxes(sizes, boxes.const_data_ptr<float>(), order.const_data_ptr<int64_t>(),
                          high.const_data_ptr<bool>(), selected.mutable_data_ptr<int64_t>(),
                          counts.mutable_data_ptr<int64_t>(), stream);
    });
  }
  const at::Tensor places = at::arange(sizes.limit, int64s).lt(counts).nonzero();
  const at::Tensor group = places.select(1, 0);
  return at::stack({group.floor_divide(std::max<int64_t>(classes, 1)), group.remainder(std::max<int64_t>(classes, 1)),
                    selected.index({group, places.select(1, 1)})},
                   1);
}

}  // namespace

TORCH_LIBRARY_IMPL(onnx_torch, CUDA, m) {
  m.impl("roi_align", &onnxtorch::roi_align<&roi_align_into>);
  m.impl("max_roi_pool", &onnxtorch::max_roi_pool<&max_roi_pool_into>);
  m.impl("non_max_suppression", &onnxtorch::non_max_suppression<&select_in_classes>);
}

}  // namespace onnxtorch::cuda
