// DeformConv over any number of spatial dimensions: every tap of the kernel is sampled where its offset points to,
// and a matrix product with the weights does the rest.
#include "kernels/standard/deform_conv.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "base/parallel.h"
#include "base/size.h"
#include "kernels/standard/sampling.h"

namespace onnxtorch {
namespace {

// The sizes and parameters by spatial dimension; pads at the beginning only.
struct Geometry {
  at::IntArrayRef input, kernel, output, pads, strides, dilations;

  size_t rank() const { return input.size(); }
  size_t neighbours() const { return size_t{1} << rank(); }
};

// Finds the pixels around the point where a tap, moved by its offset, meets the input at an output position, and their
// weights in linear interpolation, times `scale`. Pixels outside the input have no weight. `offset` points to the
// offset along the first dimension; the others follow at a distance of `offset_step`.
template <typename T>
void find_neighbours(const Geometry& g, int64_t tap, int64_t position, const T* offset, int64_t offset_step, T scale,
                     int64_t* pixels, T* weights) {
  pixels[0] = 0;
  weights[0] = scale;
  int64_t pixel_step = 1;
  size_t count = 1;
  for (size_t d = g.rank(); d-- > 0; count *= 2) {
    const int64_t size = g.input[d];
    const int64_t undeformed = position % g.output[d] * g.strides[d] - g.pads[d] + tap % g.kernel[d] * g.dilations[d];
    const AxisSample<T> sample =
        sample_among_zeros(static_cast<T>(undeformed) + offset[static_cast<int64_t>(d) * offset_step], size);
    for (size_t i = 0; i < count; ++i) {
      pixels[count + i] = pixels[i] + sample.high * pixel_step;
      weights[count + i] = weights[i] * sample.high_weight;
      pixels[i] += sample.low * pixel_step;
      weights[i] *= sample.low_weight;
    }
    position /= g.output[d];
    tap /= g.kernel[d];
    pixel_step *= size;
  }
}

// Computes columns[channel, tap, position] of one image [channels, input...], its offset [groups, taps, rank,
// output...] and its mask [groups, taps, output...], which may be absent.
template <typename T>
void sample_columns(const Geometry& g, at::Tensor& columns, const T* image, const T* offset, const T* mask,
                    int64_t offset_groups) {
  const int64_t taps = columns.size(1), positions = columns.size(2);
  const int64_t channels_per_group = columns.size(0) / offset_groups;
  const int64_t pixels_per_channel = product_of(g.input).value();
  const auto rank = static_cast<int64_t>(g.rank());
  const auto neighbours = static_cast<int64_t>(g.neighbours());
  T* const out = columns.mutable_data_ptr<T>();

  constexpr int64_t kBlock = 256;  // positions: their neighbours are found once and used for every channel of the group
  constexpr int64_t kCost = 8;     // of a neighbour in a channel
  parallel_for(
      offset_groups * taps * positions, kCost * neighbours * (channels_per_group + 1), [&](int64_t begin, int64_t end) {
        std::vector<int64_t> pixels(kBlock * neighbours);
        std::vector<T> weights(kBlock * neighbours);
        while (begin < end) {
          const int64_t group_and_tap = begin / positions, first = begin % positions;
          const int64_t group = group_and_tap / taps, tap = group_and_tap % taps;
          const int64_t count = std::min({kBlock, end - begin, positions - first});
          for (int64_t i = 0; i < count; ++i) {
            const T scale = mask ? mask[begin + i] : T(1);
            find_neighbours(g, tap, first + i, offset + group_and_tap * rank * positions + first + i, positions, scale,
                            &pixels[i * neighbours], &weights[i * neighbours]);
          }
          for (int64_t channel = group * channels_per_group; channel < (group + 1) * channels_per_group; ++channel) {
            const T* plane = image + channel * pixels_per_channel;
            T* column = out + (channel * taps + tap) * positions + first;
            for (int64_t i = 0; i < count; ++i) {
              column[i] = std::transform_reduce(&pixels[i * neighbours], &pixels[i * neighbours] + neighbours,
                                                &weights[i * neighbours], T(0), std::plus<>(),
                                                [&](int64_t pixel, T weight) { return plane[pixel] * weight; });
            }
          }
          begin += count;
        }
      });
}

at::Tensor deform_conv(const at::Tensor& x, const at::Tensor& w, const at::Tensor& offset,
                       const std::optional<at::Tensor>& b, const std::optional<at::Tensor>& mask,
                       at::IntArrayRef dilations, int64_t group, at::IntArrayRef kernel_shape, int64_t offset_group,
                       at::IntArrayRef pads, at::IntArrayRef strides) {
  const auto in_compute_dtype = [dtype = at::toOpMathType(x.scalar_type())](const at::Tensor& tensor) {
    return tensor.to(dtype).contiguous();
  };
  const at::Tensor images = in_compute_dtype(x), offsets = in_compute_dtype(offset);
  const at::Tensor masks = mask ? in_compute_dtype(*mask) : at::Tensor();
  at::Tensor y =
      deform_conv_meta(images, w, offset, b, mask, dilations, group, kernel_shape, offset_group, pads, strides);
  const at::IntArrayRef output = y.sizes().slice(2);
  const Geometry geometry{x.sizes().slice(2), kernel_shape, output, pads, strides, dilations};

  const int64_t taps = product_of(kernel_shape).value(), positions = product_of(output).value();
  const at::Tensor weights = in_compute_dtype(w).view({group, w.size(0) / group, w.size(1) * taps});
  at::Tensor columns = at::zeros({x.size(1), taps, positions}, images.options());
  for (int64_t n = 0; n < x.size(0); ++n) {
    if (images.numel() > 0) {
      AT_DISPATCH_FLOATING_TYPES(images.scalar_type(), "deform_conv", [&] {
        sample_columns<scalar_t>(geometry, columns, images[n].const_data_ptr<scalar_t>(),
                                 offsets[n].const_data_ptr<scalar_t>(),
                                 mask ? masks[n].const_data_ptr<scalar_t>() : nullptr, offset_group);
      });
    }
    at::Tensor result = y[n].view({group, w.size(0) / group, positions});
    at::bmm_out(result, weights, columns.view({group, w.size(1) * taps, positions}));
  }
  if (b) y.flatten(2).add_(in_compute_dtype(*b).unsqueeze(1));
  return y.to(x.scalar_type());
}

}  // namespace

at::Tensor deform_conv_meta(const at::Tensor& x, const at::Tensor& w, const at::Tensor& offset,
                            const std::optional<at::Tensor>& b, const std::optional<at::Tensor>& mask,
                            at::IntArrayRef dilations, int64_t group, at::IntArrayRef kernel_shape,
                            int64_t offset_group, at::IntArrayRef pads, at::IntArrayRef strides) {
  TORCH_CHECK(x.dim() >= 3 && w.dim() == x.dim() && offset.dim() == x.dim(),
              "DeformConv: X, W and offset must have the same rank, of at least 3: ", x.sizes(), ", ", w.sizes(), ", ",
              offset.sizes());
  const size_t rank = x.dim() - 2;
  TORCH_CHECK(dilations.size() == rank && strides.size() == rank && pads.size() == 2 * rank,
              "DeformConv: dilations, pads or strides do not fit ", rank, " spatial dimensions");
  TORCH_CHECK(kernel_shape == w.sizes().slice(2), "DeformConv: kernel_shape ", kernel_shape,
              " differs from the shape of W, ", w.sizes());
  TORCH_CHECK(group > 0 && Size(w.size(1)) * group == x.size(1) && w.size(0) % group == 0, "DeformConv: X ", x.sizes(),
              " and W ", w.sizes(), " do not fit ", group, " groups");
  TORCH_CHECK(offset_group > 0 && x.size(1) % offset_group == 0, "DeformConv: ", x.size(1),
              " channels do not divide into ", offset_group, " offset groups");
  TORCH_CHECK(!b || (b->dim() == 1 && b->size(0) == w.size(0)), "DeformConv: B must be [", w.size(0), "]");

  std::vector<int64_t> shape{x.size(0), w.size(0)};
  for (size_t d = 0; d < rank; ++d) {
    TORCH_CHECK(strides[d] > 0 && dilations[d] > 0, "DeformConv: strides and dilations must be positive");
    const Size padded = Size(x.sizes()[2 + d]) + pads[d] + pads[rank + d];
    const int64_t room = (padded - Size(dilations[d]) * (kernel_shape[d] - 1) - 1).value();
    TORCH_CHECK(room >= 0, "DeformConv: the kernel is larger than the padded input");
    shape.push_back(room / strides[d] + 1);
  }
  const auto check_shape = [&](const at::Tensor& tensor, const char* name, Size channels) {
    std::vector<int64_t> expected = shape;
    expected[1] = channels.value();
    TORCH_CHECK(tensor.sizes() == expected, "DeformConv: ", name, " must be ", at::IntArrayRef(expected), ", not ",
                tensor.sizes());
  };
  const Size taps = product_of(kernel_shape);
  check_shape(offset, "offset", taps * offset_group * static_cast<int64_t>(rank));
  if (mask) check_shape(*mask, "mask", taps * offset_group);
  return at::empty(shape, x.options());
}

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // Convolution whose kernel's taps are moved by `offset` and scaled by `mask`; the arguments are DeformConv's own.
  m.def(
      "deform_conv(Tensor x, Tensor w, Tensor offset, Tensor? b, Tensor? mask, int[] dilations, int group,"
      " int[] kernel_shape, int offset_group, int[] pads, int[] strides) -> Tensor");
}

TORCH_LIBRARY_IMPL(onnx_torch, CPU, m) { m.impl("deform_conv", &deform_conv); }
TORCH_LIBRARY_IMPL(onnx_torch, Meta, m) { m.impl("deform_conv", &deform_conv_meta); }

}  // namespace onnxtorch
