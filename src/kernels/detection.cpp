// NonMaxSuppression, RoiAlign and MaxRoiPool.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace onnxtorch {
namespace {

// ---- NonMaxSuppression

struct Box {
  float y_min, x_min, y_max, x_max;

  float area() const { return (y_max - y_min) * (x_max - x_min); }
};

Box box_of_corners(const float* p) {
  const auto [y_min, y_max] = std::minmax({p[0], p[2]});
  const auto [x_min, x_max] = std::minmax({p[1], p[3]});
  return {y_min, x_min, y_max, x_max};
}

Box box_around_center(const float* p) {
  const float half_width = p[2] / 2, half_height = p[3] / 2;
  return {p[1] - half_height, p[0] - half_width, p[1] + half_height, p[0] + half_width};
}

float intersection_over_union(const Box& a, const Box& b) {
  const float height = std::min(a.y_max, b.y_max) - std::max(a.y_min, b.y_min);
  const float width = std::min(a.x_max, b.x_max) - std::max(a.x_min, b.x_min);
  const bool meet = height > 0 && width > 0;
  if (!meet) return 0;
  const float common = height * width;
  const float either = a.area() + b.area() - common;
  return either > 0 ? common / either : 0;
}

struct SelectionLimits {
  int64_t max_boxes;
  float iou_threshold;
  std::optional<float> score_threshold;
};

// The boxes of one class that remain: the best score first and, among equal scores, in their order.
std::vector<int64_t> select_boxes(std::span<const Box> boxes, const float* scores, const SelectionLimits& limits) {
  std::vector<int64_t> candidates;
  for (int64_t i = 0; i < std::ssize(boxes); ++i) {
    // The specification removes scores "less than" the threshold; the reference implementation removes equal ones too.
    const bool high = limits.score_threshold ? scores[i] > *limits.score_threshold : !std::isnan(scores[i]);
    if (high) candidates.push_back(i);
  }
  std::ranges::stable_sort(candidates, std::greater<>{}, [&](int64_t i) { return scores[i]; });

  std::vector<int64_t> selected;
  for (const int64_t candidate : candidates) {
    if (std::ssize(selected) >= limits.max_boxes) break;
    const bool suppressed = std::ranges::any_of(selected, [&](int64_t i) {
      return intersection_over_union(boxes[candidate], boxes[i]) > limits.iou_threshold;
    });
    if (!suppressed) selected.push_back(candidate);
  }
  return selected;
}

template <typename T>
std::optional<T> scalar_input(const std::optional<at::Tensor>& tensor) {
  if (!tensor || tensor->numel() == 0) return std::nullopt;
  return tensor->item().to<T>();
}

at::Tensor non_max_suppression(const at::Tensor& boxes, const at::Tensor& scores,
                               const std::optional<at::Tensor>& max_output_boxes_per_class,
                               const std::optional<at::Tensor>& iou_threshold,
                               const std::optional<at::Tensor>& score_threshold, bool center_point_box) {
  TORCH_CHECK(boxes.dim() == 3 && boxes.size(2) == 4, "NonMaxSuppression: boxes must be [batches, boxes, 4], not ",
              boxes.sizes());
  TORCH_CHECK(scores.dim() == 3 && scores.size(0) == boxes.size(0) && scores.size(2) == boxes.size(1),
              "NonMaxSuppression: scores of shape ", scores.sizes(), " do not fit boxes of shape ", boxes.sizes());
  const SelectionLimits limits{
      .max_boxes = scalar_input<int64_t>(max_output_boxes_per_class).value_or(0),
      .iou_threshold = scalar_input<float>(iou_threshold).value_or(0),
      .score_threshold = scalar_input<float>(score_threshold),
  };
  const int64_t boxes_per_batch = boxes.size(1);
  const int64_t classes = scores.size(1);

  const at::Tensor coordinates = boxes.to(at::kFloat).contiguous();
  const at::Tensor class_scores = scores.to(at::kFloat).contiguous();
  std::vector<Box> corners(boxes.size(0) * boxes_per_batch);
  const float* coordinate = coordinates.const_data_ptr<float>();
  for (Box& box : corners) {
    box = center_point_box ? box_around_center(coordinate) : box_of_corners(coordinate);
    coordinate += 4;
  }

  std::vector<std::vector<int64_t>> selected(scores.size(0) * classes);
  at::parallel_for(0, std::ssize(selected), /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::span batch = std::span(corners).subspan(i / classes * boxes_per_batch, boxes_per_batch);
      selected[i] = select_boxes(batch, class_scores.const_data_ptr<float>() + i * boxes_per_batch, limits);
    }
  });

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

// Where one sampling point lies along one axis: between two pixels, or nowhere, with no weight.
template <typename T>
struct AxisSample {
  int64_t low, high;
  T low_weight, high_weight;
};

template <typename T>
AxisSample<T> sample_axis(T position, int64_t size) {
  if (!(position >= -1 && position <= static_cast<T>(size))) return {0, 0, 0, 0};
  position = std::clamp<T>(position, 0, static_cast<T>(size - 1));
  const auto low = static_cast<int64_t>(position);
  const T fraction = position - static_cast<T>(low);
  return {low, std::min(low + 1, size - 1), 1 - fraction, fraction};
}

// One axis of a region of interest: `grid` sampling points for each of the pooled bins.
template <typename T>
struct AxisSamples {
  int64_t grid;
  std::vector<AxisSample<T>> samples;

  AxisSamples(T start, T length, int64_t bins, int64_t sampling_ratio, int64_t size) {
    const T bin_length = length / static_cast<T>(bins);
    const T adaptive = std::max<T>(std::ceil(bin_length), 0);
    constexpr T kLimit = 1 << 20;
    TORCH_CHECK(sampling_ratio > 0 || adaptive <= kLimit, "RoiAlign: a region of interest of length ", length,
                " is too large");
    grid = sampling_ratio > 0 ? sampling_ratio : static_cast<int64_t>(adaptive);
    samples.reserve(bins * grid);
    for (int64_t bin = 0; bin < bins; ++bin) {
      for (int64_t i = 0; i < grid; ++i) {
        const T within = (static_cast<T>(i) + T(0.5)) * bin_length / static_cast<T>(grid);
        samples.push_back(sample_axis(start + static_cast<T>(bin) * bin_length + within, size));
      }
    }
  }

  std::span<const AxisSample<T>> of_bin(int64_t bin) const { return std::span(samples).subspan(bin * grid, grid); }
};

template <typename T>
T average_of_bin(const T* image, int64_t width, std::span<const AxisSample<T>> ys, std::span<const AxisSample<T>> xs) {
  if (ys.empty() || xs.empty()) return 0;
  T sum = 0;
  for (const auto& y : ys) {
    const T *low = image + y.low * width, *high = image + y.high * width;
    for (const auto& x : xs) {
      sum += y.low_weight * (x.low_weight * low[x.low] + x.high_weight * low[x.high]) +
             y.high_weight * (x.low_weight * high[x.low] + x.high_weight * high[x.high]);
    }
  }
  return sum / static_cast<T>(ys.size() * xs.size());
}

// The largest of the weighted pixels, not of the interpolated values: ONNX's own definition of "max".
template <typename T>
T maximum_of_bin(const T* image, int64_t width, std::span<const AxisSample<T>> ys, std::span<const AxisSample<T>> xs) {
  if (ys.empty() || xs.empty()) return 0;
  T maximum = -std::numeric_limits<T>::infinity();
  for (const auto& y : ys) {
    const T *low = image + y.low * width, *high = image + y.high * width;
    for (const auto& x : xs) {
      maximum = std::max({maximum, y.low_weight * x.low_weight * low[x.low], y.low_weight * x.high_weight * low[x.high],
                          y.high_weight * x.low_weight * high[x.low], y.high_weight * x.high_weight * high[x.high]});
    }
  }
  return maximum;
}

struct RoiAlignOptions {
  bool half_pixel;
  bool maximum;
  int64_t sampling_ratio;
  double spatial_scale;
};

template <typename T>
void roi_align_into(at::Tensor& result, const at::Tensor& x, const at::Tensor& rois, const at::Tensor& batch_indices,
                    const RoiAlignOptions& options) {
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t bins_y = result.size(2), bins_x = result.size(3);
  const T scale = static_cast<T>(options.spatial_scale);
  const T shift = options.half_pixel ? T(0.5) : T(0);
  const auto pool_bin = options.maximum ? maximum_of_bin<T> : average_of_bin<T>;

  at::parallel_for(0, rois.size(0), /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* roi = rois.const_data_ptr<T>() + n * 4;
      const T x_start = roi[0] * scale - shift, y_start = roi[1] * scale - shift;
      T roi_width = roi[2] * scale - shift - x_start, roi_height = roi[3] * scale - shift - y_start;
      if (!options.half_pixel) {
        roi_width = std::max<T>(roi_width, 1);
        roi_height = std::max<T>(roi_height, 1);
      }
      const AxisSamples<T> ys(y_start, roi_height, bins_y, options.sampling_ratio, height);
      const AxisSamples<T> xs(x_start, roi_width, bins_x, options.sampling_ratio, width);

      const int64_t batch = batch_indices.const_data_ptr<int64_t>()[n];
      TORCH_CHECK(batch >= 0 && batch < x.size(0), "batch index ", batch, " is out of range for a batch of ",
                  x.size(0));
      const T* image = x.const_data_ptr<T>() + batch * channels * height * width;
      T* out = result.mutable_data_ptr<T>() + n * channels * bins_y * bins_x;
      for (int64_t channel = 0; channel < channels; ++channel, image += height * width) {
        for (int64_t bin_y = 0; bin_y < bins_y; ++bin_y) {
          for (int64_t bin_x = 0; bin_x < bins_x; ++bin_x) {
            *out++ = pool_bin(image, width, ys.of_bin(bin_y), xs.of_bin(bin_x));
          }
        }
      }
    }
  });
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

at::Tensor roi_align(const at::Tensor& x, const at::Tensor& rois, const at::Tensor& batch_indices,
                     std::string_view coordinate_transformation_mode, std::string_view mode, int64_t output_height,
                     int64_t output_width, int64_t sampling_ratio, double spatial_scale) {
  const at::Tensor image = x.to(at::toOpMathType(x.scalar_type())).contiguous();
  at::Tensor result = roi_align_meta(image, rois, batch_indices, coordinate_transformation_mode, mode, output_height,
                                     output_width, sampling_ratio, spatial_scale);
  TORCH_CHECK(result.numel() == 0 || image.numel() > 0, "RoiAlign: X has no pixels: ", x.sizes());
  const RoiAlignOptions options{coordinate_transformation_mode == "half_pixel", mode == "max", sampling_ratio,
                                spatial_scale};
  AT_DISPATCH_FLOATING_TYPES(image.scalar_type(), "roi_align", [&] {
    roi_align_into<scalar_t>(result, image, rois.to(image.scalar_type()).contiguous(),
                             batch_indices.to(at::kLong).contiguous(), options);
  });
  return result.to(x.scalar_type());
}

// ---- MaxRoiPool

struct Interval {
  int64_t begin, end;
};

// The pixels of a bin where `length` pixels are divided into `bins`; neighbours overlap where they do not divide
// evenly.
Interval pixels_of_bin(int64_t bin, int64_t bins, int64_t start, int64_t length, int64_t size) {
  const int64_t begin = start + bin * length / bins;
  const int64_t end = start + ((bin + 1) * length + bins - 1) / bins;
  return {std::clamp<int64_t>(begin, 0, size), std::clamp<int64_t>(end, 0, size)};
}

template <typename T>
int64_t scaled_pixel(T coordinate, T scale) {
  const T pixel = std::round(coordinate * scale);
  TORCH_CHECK(std::abs(pixel) <= T(1 << 30), "MaxRoiPool: a region of interest reaches to pixel ", pixel);
  return static_cast<int64_t>(pixel);
}

template <typename T>
T maximum_within(const T* image, int64_t width, Interval rows, Interval columns) {
  if (rows.begin >= rows.end || columns.begin >= columns.end) return 0;
  T maximum = -std::numeric_limits<T>::infinity();
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      maximum = std::max(maximum, image[row * width + column]);
    }
  }
  return maximum;
}

template <typename T>
void max_roi_pool_into(at::Tensor& result, const at::Tensor& x, const at::Tensor& rois, double spatial_scale) {
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t bins_y = result.size(2), bins_x = result.size(3);
  const T scale = static_cast<T>(spatial_scale);

  at::parallel_for(0, rois.size(0), /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* roi = rois.const_data_ptr<T>() + n * 5;
      TORCH_CHECK(roi[0] >= 0 && roi[0] < static_cast<T>(x.size(0)), "MaxRoiPool: batch index ", roi[0],
                  " is out of range for a batch of ", x.size(0));
      const int64_t x_start = scaled_pixel(roi[1], scale), y_start = scaled_pixel(roi[2], scale);
      const int64_t roi_width = std::max<int64_t>(scaled_pixel(roi[3], scale) - x_start + 1, 1);
      const int64_t roi_height = std::max<int64_t>(scaled_pixel(roi[4], scale) - y_start + 1, 1);

      const T* image = x.const_data_ptr<T>() + static_cast<int64_t>(roi[0]) * channels * height * width;
      T* out = result.mutable_data_ptr<T>() + n * channels * bins_y * bins_x;
      for (int64_t channel = 0; channel < channels; ++channel, image += height * width) {
        for (int64_t bin_y = 0; bin_y < bins_y; ++bin_y) {
          const Interval rows = pixels_of_bin(bin_y, bins_y, y_start, roi_height, height);
          for (int64_t bin_x = 0; bin_x < bins_x; ++bin_x) {
            *out++ = maximum_within(image, width, rows, pixels_of_bin(bin_x, bins_x, x_start, roi_width, width));
          }
        }
      }
    }
  });
}

at::Tensor max_roi_pool_meta(const at::Tensor& x, const at::Tensor& rois, at::IntArrayRef pooled_shape,
                             double /*spatial_scale*/) {
  TORCH_CHECK(x.dim() == 4, "MaxRoiPool: X must be [N, C, H, W], not ", x.sizes());
  TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 5, "MaxRoiPool: rois must be [num_rois, 5], not ", rois.sizes());
  TORCH_CHECK(pooled_shape.size() == 2 && pooled_shape[0] > 0 && pooled_shape[1] > 0,
              "MaxRoiPool: pooled_shape must be two positive numbers, not ", pooled_shape);
  return at::empty({rois.size(0), x.size(1), pooled_shape[0], pooled_shape[1]}, x.options());
}

at::Tensor max_roi_pool(const at::Tensor& x, const at::Tensor& rois, at::IntArrayRef pooled_shape,
                        double spatial_scale) {
  const at::Tensor image = x.to(at::toOpMathType(x.scalar_type())).contiguous();
  at::Tensor result = max_roi_pool_meta(image, rois, pooled_shape, spatial_scale);
  AT_DISPATCH_FLOATING_TYPES(image.scalar_type(), "max_roi_pool", [&] {
    max_roi_pool_into<scalar_t>(result, image, rois.to(image.scalar_type()).contiguous(), spatial_scale);
  });
  return result.to(x.scalar_type());
}

}  // namespace

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
  m.impl("non_max_suppression", &non_max_suppression);
  m.impl("roi_align", &roi_align);
  m.impl("max_roi_pool", &max_roi_pool);
}

TORCH_LIBRARY_IMPL(onnx_torch, Meta, m) {
  m.impl("roi_align", &roi_align_meta);
  m.impl("max_roi_pool", &max_roi_pool_meta);
}

}  // namespace onnxtorch
