#include "lower/onednn/shifted_weight.h"

#include <ATen/ATen.h>

#include "kernels/own_pages.h"
#include "lower/onednn/sums.h"

namespace onnxtorch::onednn {

ShiftedWeight::ShiftedWeight(at::Tensor given, const at::Tensor& zero_points, int64_t channel_dim)
    : given_(std::move(given)), sizes_(given_.sizes().vec()), count_(given_.numel()), channel_dim_(channel_dim) {
  const Channels channels = channels_of(given_, channel_dim_);
  const at::Tensor zeros = zero_points.reshape(-1).expand(given_.size(channel_dim_));
  const at::Tensor low = channels.lowest - zeros, high = channels.highest - zeros;
  shifts_ = (at::clamp_min(high - 127, 0) + at::clamp_max(low + 128, 0)).contiguous();
  offsets_ = zeros + shifts_;
  totals_ = at::sub(channels.totals.to(c10::kLong), offsets_, terms());
  has_shifts_ = at::any(shifts_).item<bool>();
}

at::Tensor ShiftedWeight::along_channels(const at::Tensor& t) const {
  std::vector<int64_t> shape(sizes_.size(), 1);
  shape[channel_dim_] = -1;
  return t.reshape(shape);
}

at::Tensor ShiftedWeight::form() const { return at::empty(sizes_, at::device(at::kMeta).dtype(at::kChar)); }

// Bytes wrap, and what comes of it fits.
at::Tensor ShiftedWeight::numbers() const {
  if (given_.scalar_type() == c10::kChar && !at::any(offsets_).item<bool>()) return given_.contiguous();
  const at::Tensor offsets = at::bitwise_and(offsets_, 255).to(c10::kByte);
  at::Tensor result = own_pages(count_).view(sizes_);
  return at::sub_out(result, given_.view(c10::kByte), along_channels(offsets)).view(c10::kChar);
}

at::Tensor ShiftedWeight::in_double(const at::Tensor& numbers) const {
  return numbers.to(c10::kDouble) + along_channels(shifts_);
}

}  // namespace onnxtorch::onednn
