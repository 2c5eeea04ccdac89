#include "kernels/standard/deform_conv.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/cuda/current.h"
#include "kernels/cuda/deform_conv.h"

namespace onnxtorch::cuda {
namespace {

constexpr int64_t kColumnBytes = int64_t{1} << 28;  // so many images are taken at a time as have columns of this size

// Computes the columns [channels, taps, images, positions] of contiguous tensors of one dtype.
at::Tensor columns_of(Deformation sizes, const at::Tensor& x, const at::Tensor& offset, const at::Tensor& mask) {
  sizes.images = x.size(0);
  at::Tensor columns = at::empty({sizes.channels, sizes.taps, sizes.images, sizes.positions}, x.options());
  if (x.numel() == 0) return columns.zero_();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "deform_conv", [&] {
    on_device_of(x, [&](cudaStream_t stream) {
      return sample_columns(sizes, x.const_data_ptr<scalar_t>(), offset.const_data_ptr<scalar_t>(),
                            mask.defined() ? mask.const_data_ptr<scalar_t>() : nullptr,
                            columns.mutable_data_ptr<scalar_t>(), stream);
    });
  });
  return columns;
}

at::Tensor deform_conv(const at::Tensor& x, const at::Tensor& w, const at::Tensor& offset,
                       const std::optional<at::Tensor>& b, const std::optional<at::Tensor>& mask,
                       at::IntArrayRef dilations, int64_t group, at::IntArrayRef kernel_shape, int64_t offset_group,
                       at::IntArrayRef pads, at::IntArrayRef strides) {
  const auto compute = x.options().dtype(at::toOpMathType(x.scalar_type()));
  const auto in_compute_dtype = [&](const at::Tensor& tensor) { return tensor.to(compute).contiguous(); };
  const at::Tensor images = in_compute_dtype(x), offsets = in_compute_dtype(offset);
  const at::Tensor masks = mask ? in_compute_dtype(*mask) : at::Tensor();
  at::Tensor y =
      deform_conv_meta(images, w, offset, b, mask, dilations, group, kernel_shape, offset_group, pads, strides);
  const at::IntArrayRef input = x.sizes().slice(2), output = y.sizes().slice(2);
  TORCH_CHECK(input.size() <= kMaxSpatialRank, "DeformConv on CUDA takes at most ", kMaxSpatialRank,
              " spatial dimensions, not ", input.size());

  Deformation sizes{.images = 1,
                    .channels = x.size(1),
                    .offset_groups = offset_group,
                    .taps = c10::multiply_integers(kernel_shape),
                    .positions = c10::multiply_integers(output),
                    .pixels = c10::multiply_integers(input),
                    .rank = static_cast<int>(input.size()),
                    .axes = {}};
  for (size_t d = 0; d < input.size(); ++d) {
    sizes.axes[d] = {input[d], kernel_shape[d], output[d], pads[d], strides[d], dilations[d]};
  }
  const int64_t inner = w.size(1) * sizes.taps, outer = w.size(0) / group;
  const at::Tensor weights = in_compute_dtype(w).view({group, outer, inner});
  const int64_t bytes = sizes.channels * sizes.taps * sizes.positions * images.element_size();
  const int64_t images_at_a_time = std::max<int64_t>(kColumnBytes / std::max<int64_t>(bytes, 1), 1);
  for (int64_t first = 0; first < x.size(0); first += images_at_a_time) {
    const int64_t count = std::min(images_at_a_time, x.size(0) - first);
    const auto part = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.narrow(0, first, count) : tensor;
    };
    const at::Tensor columns = columns_of(sizes, part(images), part(offsets), part(masks));
    const at::Tensor products = at::bmm(weights, columns.view({group, inner, count * sizes.positions}));
    y.narrow(0, first, count)
        .copy_(products.view({w.size(0), count, sizes.positions}).transpose(0, 1).reshape(part(y).sizes()));
  }
  if (b) y.flatten(2).add_(in_compute_dtype(*b).unsqueeze(1));
  return y.to(x.scalar_type());
}

}  // namespace

TORCH_LIBRARY_IMPL(onnx_torch, CUDA, m) { m.impl("deform_conv", &deform_conv); }

}  // namespace onnxtorch::cuda
