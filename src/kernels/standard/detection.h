// The parts that the devices' kernels of RoiAlign, MaxRoiPool and NonMaxSuppression share: checks, and conversions to
// one type.
#pragma once

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <optional>
#include <string_view>

#include "kernels/standard/regions.h"

namespace onnxtorch {

// ---- RoiAlign

at::Tensor roi_align_meta(const at::Tensor& x, const at::Tensor& rois, const at::Tensor& batch_indices,
                          std::string_view coordinate_transformation_mode, std::string_view mode, int64_t output_height,
                          int64_t output_width, int64_t sampling_ratio, double spatial_scale);

// Pools by `pool`, which fills the result it is given, from contiguous tensors of float or double, and of int64
// indices.
template <void (*pool)(at::Tensor& result, const at::Tensor& x, const at::Tensor& rois, const at::Tensor& batch_indices,
                       const RoiAlignOptions& options)>
at::Tensor roi_align(const at::Tensor& x, const at::Tensor& rois, const at::Tensor& batch_indices,
                     std::string_view coordinate_transformation_mode, std::string_view mode, int64_t output_height,
                     int64_t output_width, int64_t sampling_ratio, double spatial_scale) {
  const at::Tensor image = x.to(at::toOpMathType(x.scalar_type())).contiguous();
  at::Tensor result = roi_align_meta(image, rois, batch_indices, coordinate_transformation_mode, mode, output_height,
                                     output_width, sampling_ratio, spatial_scale);
  TORCH_CHECK(result.numel() == 0 || image.numel() > 0, "RoiAlign: X has no pixels: ", x.sizes());
  pool(result, image, rois.to(image.options()).contiguous(),
       batch_indices.to(image.options().dtype(at::kLong)).contiguous(),
       {coordinate_transformation_mode == "half_pixel", mode == "max", sampling_ratio, spatial_scale});
  return result.to(x.scalar_type());
}

// ---- MaxRoiPool

at::Tensor max_roi_pool_meta(const at::Tensor& x, const at::Tensor& rois, at::IntArrayRef pooled_shape,
                             double spatial_scale);

template <void (*pool)(at::Tensor& result, const at::Tensor& x, const at::Tensor& rois, double spatial_scale)>
at::Tensor max_roi_pool(const at::Tensor& x, const at::Tensor& rois, at::IntArrayRef pooled_shape,
                        double spatial_scale) {
  const at::Tensor image = x.to(at::toOpMathType(x.scalar_type())).contiguous();
  at::Tensor result = max_roi_pool_meta(image, rois, pooled_shape, spatial_scale);
  pool(result, image, rois.to(image.options()).contiguous(), spatial_scale);
  return result.to(x.scalar_type());
}

// ---- NonMaxSuppression

struct SelectionLimits {
  int64_t max_boxes;
  float iou_threshold;
  std::optional<float> score_threshold;
};

// Checks the shapes, and reads the numbers.
SelectionLimits selection_limits(const at::Tensor& boxes, const at::Tensor& scores,
                                 const std::optional<at::Tensor>& max_output_boxes_per_class,
                                 const std::optional<at::Tensor>& iou_threshold,
                                 const std::optional<at::Tensor>& score_threshold);

// Selects boxes by `select`, which gives rows of [batch, class, box], from contiguous tensors of float.
template <at::Tensor (*select)(const at::Tensor& boxes, const at::Tensor& scores, const SelectionLimits& limits,
                               bool center_point_box)>
at::Tensor non_max_suppression(const at::Tensor& boxes, const at::Tensor& scores,
                               const std::optional<at::Tensor>& max_output_boxes_per_class,
                               const std::optional<at::Tensor>& iou_threshold,
                               const std::optional<at::Tensor>& score_threshold, bool center_point_box) {
  const SelectionLimits limits =
      selection_limits(boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold);
  return select(boxes.to(at::kFloat).contiguous(), scores.to(at::kFloat).contiguous(), limits, center_point_box);
}

}  // namespace onnxtorch
