#include "kernels/standard/detection.h"

#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "base/run_guard.h"
#include "base/size.h"
#include "kernels/standard/boxes.h"

namespace onnxtorch {
namespace {

// ---- NonMaxSuppression

// Gives the boxes of one class that remain: the best score first and, among equal scores, in their order.
std::vector<int64_t> select_boxes(std::span<const Box> boxes, const float* scores, const SelectionLimits& limits,
                                  const RunWatch& watch) {
  const auto comes_later = [&](int64_t i, int64_t j) { return scores[i] != scores[j] ? scores[i] < scores[j] : i > j; };
  std::vector<int64_t> candidates;
  for (int64_t i = 0; i < std::ssize(boxes); ++i) {
    // The specification removes scores "less than" the threshold; the reference implementation removes equal ones too.
    const bool high = limits.score_threshold ? scores[i] > *limits.score_threshold : !std::isnan(scores[i]);
    if (high) candidates.push_back(i);
  }
  std::ranges::make_heap(candidates, comes_later);  // few of many are looked at

  std::vector<int64_t> selected;
  std::vector<Box> taken;
  while (!candidates.empty() && std::ssize(selected) < limits.max_boxes && !watch.is_over()) {
    std::ranges::pop_heap(candidates, comes_later);
    const int64_t candidate = candidates.back();
    candidates.pop_back();
    const Box& box = boxes[candidate];
    const bool suppressed = std::ranges::any_of(
        taken, [&](const Box& better) { return intersection_over_union(box, better) > limits.iou_threshold; });
    if (suppressed) continue;
    selected.push_back(candidate);
    taken.push_back(box);
  }
  return selected;
}

at::Tensor select_in_classes(const at::Tensor& boxes, const at::Tensor& scores, const SelectionLimits& limits,
                             bool center_point_box) {
  const int64_t boxes_per_batch = boxes.size(1);
  const int64_t classes = scores.size(1);

  std::vector<Box> corners((Size(boxes.size(0)) * boxes_per_batch).value());
  const float* coordinate = boxes.const_data_ptr<float>();
  for (Box& box : corners) {
    box = box_of(coordinate, center_point_box);
    coordinate += 4;
  }

  std::vector<std::vector<int64_t>> selected((Size(scores.size(0)) * classes).value());
  const RunWatch watch;
  constexpr int64_t kCost = 32;  // of a box, which is compared with those of higher scores
  parallel_for(std::ssize(selected), kCost * boxes_per_batch, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::span batch = std::span(corners).subspan(i / classes * boxes_per_batch, boxes_per_batch);
      selected[i] = select_boxes(batch, scores.const_data_ptr<float>() + i * boxes_per_batch, limits, watch);
    }
  });
  watch.check();

  int64_t count = 0;
  for (const auto& indices : selected) count += std::ssize(indices);
  at::Tensor result = at::empty({count, 3}, boxes.options().dtype(at::kLong));
  int64_t* out = result.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < std::ssize(selected); ++i) {
    for (const int64_t box : selected[i]) {
      *out++ = i / classes;
      *out++ = i % classes;
      *out++ = box;
    }
  }
  return result;
}

// ---- RoiAlign

constexpr int64_t kCostOfBin = 32;  // in one channel, as parallel_for counts

// The sampling points of an axis' bins, found once for all channels.
template <typename T>
struct AxisSamples {
  int64_t grid;
  std::vector<AxisSample<T>> samples;

  AxisSamples(const RegionAxis<T>& axis, int64_t bins) : grid(axis.grid) {
    TORCH_CHECK(grid != RegionAxis<T>::kTooLarge, "RoiAlign: a region of interest of length ", axis.length,
                " is too large");
    constexpr int64_t kMost = 1 << 24;
    const int64_t count = (Size(bins) * grid).value();
    TORCH_CHECK(count <= kMost, "RoiAlign: ", count,
                " sampling points along an axis of a region of interest are more than ", kMost);
    samples.reserve(count);
    for (int64_t bin = 0; bin < bins; ++bin) {
      for (int64_t i = 0; i < grid; ++i) samples.push_back(axis.sample(bin, i));
    }
  }

  std::span<const AxisSample<T>> of_bin(int64_t bin) const { return std::span(samples).subspan(bin * grid, grid); }
};

template <typename T>
void roi_align_of(at::Tensor& result, const at::Tensor& x, const at::Tensor& rois, const at::Tensor& batch_indices,
                  const RoiAlignOptions& options) {
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t bins_y = result.size(2), bins_x = result.size(3);
  using Samples = std::span<const AxisSample<T>>;
  const RunWatch watch;
  const auto is_over = [&watch] { return watch.is_over(); };
  const auto pool_bin =
      options.maximum ? maximum_of_bin<T, Samples, decltype(is_over)> : average_of_bin<T, Samples, decltype(is_over)>;

  parallel_for(rois.size(0), kCostOfBin * channels * bins_y * bins_x, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* roi = rois.const_data_ptr<T>() + n * 4;
      const AxisSamples<T> ys(region_axis(roi[1], roi[3], bins_y, height, options), bins_y);
      const AxisSamples<T> xs(region_axis(roi[0], roi[2], bins_x, width, options), bins_x);

      const int64_t batch = batch_indices.const_data_ptr<int64_t>()[n];
      TORCH_CHECK(batch >= 0 && batch < x.size(0), "batch index ", batch, " is out of range for a batch of ",
                  x.size(0));
      const T* image = x.const_data_ptr<T>() + batch * channels * height * width;
      T* out = result.mutable_data_ptr<T>() + n * channels * bins_y * bins_x;
      for (int64_t channel = 0; channel < channels; ++channel, image += height * width) {
        for (int64_t bin_y = 0; bin_y < bins_y; ++bin_y) {
          for (int64_t bin_x = 0; bin_x < bins_x; ++bin_x) {
            *out++ = pool_bin(image, width, ys.of_bin(bin_y), xs.of_bin(bin_x), is_over);
          }
        }
      }
    }
  });
  watch.check();
}

void roi_align_into(at::Tensor& result, const at::Tensor& x, const at::Tensor& rois, const at::Tensor& batch_indices,
                    const RoiAlignOptions& options) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "roi_align",
                             [&] { roi_align_of<scalar_t>(result, x, rois, batch_indices, options); });
}

// ---- MaxRoiPool

template <typename T>
int64_t checked_pixel(T coordinate, double spatial_scale) {
  const T pixel = scaled_pixel(coordinate, spatial_scale);
  TORCH_CHECK(is_pixel(pixel), "MaxRoiPool: a region of interest reaches to pixel ", pixel);
  return static_cast<int64_t>(pixel);
}

template <typename T>
void max_roi_pool_of(at::Tensor& result, const at::Tensor& x, const at::Tensor& rois, double spatial_scale) {
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t bins_y = result.size(2), bins_x = result.size(3);

  parallel_for(rois.size(0), kCostOfBin * channels * bins_y * bins_x, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* roi = rois.const_data_ptr<T>() + n * 5;
      TORCH_CHECK(roi[0] >= 0 && roi[0] < static_cast<T>(x.size(0)), "MaxRoiPool: batch index ", roi[0],
                  " is out of range for a batch of ", x.size(0));
      const int64_t x_first = checked_pixel(roi[1], spatial_scale), y_first = checked_pixel(roi[2], spatial_scale);
      const int64_t x_last = checked_pixel(roi[3], spatial_scale), y_last = checked_pixel(roi[4], spatial_scale);

      const T* image = x.const_data_ptr<T>() + static_cast<int64_t>(roi[0]) * channels * height * width;
      T* out = result.mutable_data_ptr<T>() + n * channels * bins_y * bins_x;
      for (int64_t channel = 0; channel < channels; ++channel, image += height * width) {
        for (int64_t bin_y = 0; bin_y < bins_y; ++bin_y) {
          const Interval rows = pixels_of_bin(bin_y, bins_y, y_first, y_last, height);
          for (int64_t bin_x = 0; bin_x < bins_x; ++bin_x) {
            *out++ = maximum_within(image, width, rows, pixels_of_bin(bin_x, bins_x, x_first, x_last, width));
          }
        }
      }
    }
  });
}

void max_roi_pool_into(at::Tensor& result, const at::Tensor& x, const at::Tensor& rois, double spatial_scale) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "max_roi_pool",
                             [&] { max_roi_pool_of<scalar_t>(result, x, rois, spatial_scale); });
}

// ---- Checks

template <typename T>
std::optional<T> scalar_input(const std::optional<at::Tensor>& tensor) {
  if (!tensor || tensor->numel() == 0) return std::nullopt;
  return tensor->item().to<T>();
}

}  // namespace

SelectionLimits selection_limits(const at::Tensor& boxes, const at::Tensor& scores,
                                 const std::optional<at::Tensor>& max_output_boxes_per_class,
                                 const std::optional<at::Tensor>& iou_threshold,
                                 const std::optional<at::Tensor>& score_threshold) {
  TORCH_CHECK(boxes.dim() == 3 && boxes.size(2) == 4, "NonMaxSuppression: boxes must be [batches, boxes, 4], not ",
              boxes.sizes());
  TORCH_CHECK(scores.dim() == 3 && scores.size(0) == boxes.size(0) && scores.size(2) == boxes.size(1),
              "NonMaxSuppression: scores of shape ", scores.sizes(), " do not fit boxes of shape ", boxes.sizes());
  return {
      .max_boxes = scalar_input<int64_t>(max_output_boxes_per_class).value_or(0),
      .iou_threshold = scalar_input<float>(iou_threshold).value_or(0),
      .score_threshold = scalar_input<float>(score_threshold),
  };
}

at::Tensor roi_align_meta(const at::Tensor& x, const at::Tensor& rois, const at::Tensor& batch_indices,
                          std::string_view coordinate_transformation_mode, std::string_view mode, int64_t output_height,
                          int64_t output_width, int64_t sampling_ratio, double /*spatial_scale*/) {
  TORCH_CHECK(x.dim() == 4, "RoiAlign: X must be [N, C, H, W], not ", x.sizes());
  TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 4, "RoiAlign: rois must be [num_rois, 4], not ", rois.sizes());
  TORCH_CHECK(batch_indices.dim() == 1 && batch_indices.size(0) == rois.size(0), "RoiAlign: batch_indices of shape ",
              batch_indices.sizes(), " do not fit rois of shape ", rois.sizes());
  TORCH_CHECK(coordinate_transformation_mode == "half_pixel" || coordinate_transformation_mode == "output_half_pixel",
              "RoiAlign: no coordinate_transformation_mode is called \"", coordinate_transformation_mode, "\"");
  TORCH_CHECK(mode == "avg" || mode == "max", "RoiAlign: no mode is called \"", mode, "\"");
  TORCH_CHECK(output_height > 0 && output_width > 0, "RoiAlign: output_height and output_width must be positive");
  TORCH_CHECK(sampling_ratio >= 0, "RoiAlign: sampling_ratio must not be negative");
  return at::empty({rois.size(0), x.size(1), output_height, output_width}, x.options());
}

at::Tensor max_roi_pool_meta(const at::Tensor& x, const at::Tensor& rois, at::IntArrayRef pooled_shape,
                             double /*spatial_scale*/) {
  TORCH_CHECK(x.dim() == 4, "MaxRoiPool: X must be [N, C, H, W], not ", x.sizes());
  TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 5, "MaxRoiPool: rois must be [num_rois, 5], not ", rois.sizes());
  TORCH_CHECK(pooled_shape.size() == 2 && pooled_shape[0] > 0 && pooled_shape[1] > 0,
              "MaxRoiPool: pooled_shape must be two positive numbers, not ", pooled_shape);
  return at::empty({rois.size(0), x.size(1), pooled_shape[0], pooled_shape[1]}, x.options());
}

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // The boxes that no better box of their batch and class overlaps too much: rows of [batch, class, box].
  m.def(
      "non_max_suppression(Tensor boxes, Tensor scores, Tensor? max_output_boxes_per_class, Tensor? iou_threshold,"
      " Tensor? score_threshold, bool center_point_box) -> Tensor");

  // Each region of interest pooled to output_height x output_width bins, from points interpolated between the pixels.
  m.def(
      "roi_align(Tensor x, Tensor rois, Tensor batch_indices, str coordinate_transformation_mode, str mode,"
      " int output_height, int output_width, int sampling_ratio, float spatial_scale) -> Tensor");

  // The largest pixel of each bin of each region of interest; a row of rois is [batch, x1, y1, x2, y2].
  m.def("max_roi_pool(Tensor x, Tensor rois, int[] pooled_shape, float spatial_scale) -> Tensor");
}

TORCH_LIBRARY_IMPL(onnx_torch, CPU, m) {
  m.impl("non_max_suppression", &non_max_suppression<&select_in_classes>);
  m.impl("roi_align", &roi_align<&roi_align_into>);
  m.impl("max_roi_pool", &max_roi_pool<&max_roi_pool_into>);
}

TORCH_LIBRARY_IMPL(onnx_torch, Meta, m) {
  m.impl("roi_align", &roi_align_meta);
  m.impl("max_roi_pool", &max_roi_pool_meta);
}

}  // namespace onnxtorch
