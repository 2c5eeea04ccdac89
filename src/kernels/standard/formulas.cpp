// Operators of this folder, composed of ATen's: slower, and with the gradients that ATen's have. The gradient of a
// kernel is that of its formula (gradients.cpp).
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "base/element_type.h"

namespace onnxtorch {
namespace {

using at::Tensor;

Tensor in_compute_dtype(const Tensor& x) { return x.to(at::toOpMathType(x.scalar_type())); }

// Casts with a gradient that goes straight through, whatever is rounded or saturates, as torch's own casts have it.
Tensor cast_small_float(const Tensor& x, int64_t to, bool /*saturate*/, std::string_view /*round_mode*/) {
  return x.to(storage_dtype(static_cast<ElementType>(to)));
}

// ---- DeformConv

Tensor along(const Tensor& values, int64_t dim, int64_t rank) {
  std::vector<int64_t> shape(rank, 1);
  shape[dim] = -1;
  return values.view(shape);
}

// Gives `image` [N, groups, channels, pixels...] at the points whose coordinate in spatial dimension d is
// coordinates[d] [N, groups, points], by linear interpolation with zeros around it: [N, groups, channels, points].
Tensor interpolated(const Tensor& image, const std::vector<Tensor>& coordinates) {
  const auto rank = static_cast<int64_t>(coordinates.size());
  const Tensor pixels = image.flatten(3);
  Tensor result;
  for (int64_t corner = 0; corner < int64_t{1} << rank; ++corner) {
    Tensor weight = at::ones_like(coordinates[0]);
    Tensor pixel = at::zeros_like(coordinates[0], at::kLong);
    for (int64_t d = 0; d < rank; ++d) {
      const int64_t size = image.size(3 + d), high = corner >> d & 1;
      const Tensor low = coordinates[d].detach().floor();
      const Tensor index = (low + high).to(at::kLong);
      const Tensor fraction = coordinates[d] - low;
      weight = weight * (high ? fraction : 1 - fraction) * index.ge(0).logical_and(index.lt(size));
      pixel = pixel * size + index.clamp(0, size - 1);
    }
    const Tensor values = pixels.gather(3, pixel.unsqueeze(2).expand({-1, -1, image.size(2), -1}));
    const Tensor term = values * weight.unsqueeze(2);
    result = result.defined() ? result + term : term;
  }
  return result;
}

Tensor deform_conv(const Tensor& x, const Tensor& w, const Tensor& offset, const std::optional<Tensor>& b,
                   const std::optional<Tensor>& mask, at::IntArrayRef dilations, int64_t group,
                   at::IntArrayRef kernel_shape, int64_t offset_group, at::IntArrayRef pads, at::IntArrayRef strides) {
  const auto rank = static_cast<int64_t>(kernel_shape.size());
  const int64_t batch = x.size(0);
  const at::IntArrayRef output = offset.sizes().slice(2);
  const Tensor image = in_compute_dtype(x).unflatten(1, {offset_group, x.size(1) / offset_group});

  std::vector<int64_t> shape{batch, offset_group};
  shape.insert(shape.end(), kernel_shape.begin(), kernel_shape.end());
  shape.push_back(rank);
  shape.insert(shape.end(), output.begin(), output.end());
  const Tensor moves = in_compute_dtype(offset).view(shape);  // [N, groups, taps..., rank, positions...]
  std::vector<Tensor> coordinates;
  for (int64_t d = 0; d < rank; ++d) {
    const Tensor taps = at::arange(kernel_shape[d], moves.options()) * dilations[d];
    const Tensor positions = at::arange(output[d], moves.options()) * strides[d] - pads[d];
    const Tensor undeformed = along(taps, d, 2 * rank) + along(positions, rank + d, 2 * rank);
    coordinates.push_back((moves.select(2 + rank, d) + undeformed).flatten(2));
  }

  Tensor columns = interpolated(image, coordinates);
  if (mask) columns = columns * in_compute_dtype(*mask).reshape({batch, offset_group, 1, -1});
  const Tensor kernel = in_compute_dtype(w).reshape({group, w.size(0) / group, w.numel() / w.size(0)});
  shape = {batch, w.size(0)};
  shape.insert(shape.end(), output.begin(), output.end());
  Tensor y = kernel.matmul(columns.reshape({batch, group, kernel.size(2), -1})).reshape(shape);
  if (b) y = y + along(in_compute_dtype(*b), 1, rank + 2);
  return y.to(x.scalar_type());
}

// ---- RoiAlign

// One axis of a region of interest: for each bin its sampling points, each as the pixel before it and the one after.
struct AxisSamples {
  Tensor pixels, weights;  // [bins, 2 * points]

  // `start` and `length` are of rank 0.
  AxisSamples(const Tensor& start, const Tensor& length, int64_t bins, int64_t sampling_ratio, int64_t size) {
    const Tensor bin_length = length / bins;
    const auto adaptive = [&] { return std::max<int64_t>(bin_length.ceil().item<int64_t>(), 0); };
    const int64_t points = sampling_ratio > 0 ? sampling_ratio : adaptive();
    const Tensor within = (at::arange(points, start.options()) + 0.5) / points;
    const Tensor position = start + (at::arange(bins, start.options()).unsqueeze(1) + within) * bin_length;
    const Tensor inside = position.ge(-1).logical_and(position.le(size));
    const Tensor clamped = position.clamp(0, size - 1);
    const Tensor low = clamped.detach().floor();
    const Tensor fraction = clamped - low;
    pixels = at::cat({low, (low + 1).clamp_max(size - 1)}, 1).to(at::kLong);
    weights = at::cat({1 - fraction, fraction}, 1) * at::cat({inside, inside}, 1);
  }
};

Tensor roi_align(const Tensor& x, const Tensor& rois, const Tensor& batch_indices,
                 std::string_view coordinate_transformation_mode, std::string_view mode, int64_t output_height,
                 int64_t output_width, int64_t sampling_ratio, double spatial_scale) {
  const Tensor image = in_compute_dtype(x);
  const bool half_pixel = coordinate_transformation_mode == "half_pixel";
  const Tensor corners = rois.to(image.scalar_type()) * spatial_scale - (half_pixel ? 0.5 : 0.0);  // x1, y1, x2, y2
  Tensor lengths = corners.slice(1, 2) - corners.slice(1, 0, 2);
  if (!half_pixel) lengths = lengths.clamp_min(1);

  std::vector<Tensor> results;
  for (int64_t n = 0; n < rois.size(0); ++n) {
    const auto axis = [&](int64_t i, int64_t bins) {
      return AxisSamples(corners[n][i], lengths[n][i], bins, sampling_ratio, x.size(3 - i));
    };
    const AxisSamples ys = axis(1, output_height), xs = axis(0, output_width);
    const Tensor pixels = image.index_select(0, batch_indices.slice(0, n, n + 1))
                              .squeeze(0)
                              .index_select(1, ys.pixels.flatten())
                              .index_select(2, xs.pixels.flatten());
    const Tensor weighted = (pixels * ys.weights.view({-1, 1}) * xs.weights.flatten())
                                .view({x.size(1), output_height, ys.pixels.size(1), output_width, xs.pixels.size(1)});
    const int64_t points = ys.pixels.size(1) * xs.pixels.size(1) / 4;
    const bool maximum = mode == "max" && points > 0;
    results.push_back(maximum ? weighted.amax({2, 4}) : weighted.sum({2, 4}) / std::max<int64_t>(points, 1));
  }
  if (results.empty()) return x.new_empty({0, x.size(1), output_height, output_width});
  return at::stack(results).to(x.scalar_type());
}

// ---- MaxRoiPool

// Computes MaxRoiPool. Within the image, a region of interest is divided as adaptive pooling divides an image. What
// lies outside has no part in the maximum, and a bin without pixels is 0.
Tensor max_roi_pool(const Tensor& x, const Tensor& rois, at::IntArrayRef pooled_shape, double spatial_scale) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const int64_t height = x.size(2), width = x.size(3);
  const Tensor image = in_compute_dtype(x);
  const Tensor regions = rois.detach().to(image.scalar_type());

  std::vector<Tensor> results;
  for (int64_t n = 0; n < rois.size(0); ++n) {
    const Tensor batch = regions[n].slice(0, 0, 1).to(at::kLong);
    const auto pixel = [&](int64_t i) { return std::llround((regions[n][i] * spatial_scale).item<double>()); };
    const int64_t x1 = pixel(1), y1 = pixel(2);
    const int64_t x2 = std::max<int64_t>(pixel(3), x1), y2 = std::max<int64_t>(pixel(4), y1);
    const int64_t left = std::max<int64_t>(-x1, 0), top = std::max<int64_t>(-y1, 0);
    const int64_t right = std::max<int64_t>(x2 + 1 - width, 0), bottom = std::max<int64_t>(y2 + 1 - height, 0);
    const Tensor region =
        at::constant_pad_nd(image.index_select(0, batch).squeeze(0), {left, right, top, bottom}, kNothing)
            .slice(1, top + y1, top + y2 + 1)
            .slice(2, left + x1, left + x2 + 1);
    const Tensor pooled = std::get<0>(at::adaptive_max_pool2d(region, pooled_shape));
    results.push_back(pooled.masked_fill(pooled.eq(kNothing), 0));
  }
  if (results.empty()) return x.new_empty({0, x.size(1), pooled_shape[0], pooled_shape[1]});
  return at::stack(results).to(x.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  m.def("cast_small_float_formula", cast_small_float);
  m.def("deform_conv_formula", deform_conv);
  m.def("max_roi_pool_formula", max_roi_pool);
  m.def("roi_align_formula", roi_align);
}

}  // namespace onnxtorch
