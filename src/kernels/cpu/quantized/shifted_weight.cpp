#include "kernels/cpu/quantized/shifted_weight.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/own_pages.h"
#include "base/parallel.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/quantized/sums.h"
#include "kernels/simd/quantized/sums.h"

namespace onnxtorch {

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

// Subtracts the offsets in bytes, which wrap around: the results fit. ATen takes several times as long.
at::Tensor ShiftedWeight::numbers() const {
  const at::Tensor given = given_.contiguous();
  const bool is_same = given.scalar_type() == c10::kChar && !at::any(offsets_).item<bool>();
  if (is_same || count_ == 0) return given.view(c10::kChar);
  const at::Tensor offsets = at::bitwise_and(offsets_, 255).to(c10::kByte);
  const at::Tensor result = own_pages(count_);
  const auto* const from = static_cast<const uint8_t*>(given.const_data_ptr());
  const auto* const offset = offsets.const_data_ptr<uint8_t>();
  auto* const to = result.data_ptr<uint8_t>();
  const int64_t inner = c10::multiply_integers(sizes_.begin() + channel_dim_ + 1, sizes_.end());
  const int64_t row = inner == 1 ? channels() : inner;
  const auto& kernels = for_this_cpu<SumKernels>();
  parallel_for(count_ / row, row, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (inner == 1) {
        kernels.subtract_each(from + i * row, offset, to + i * row, row);
      } else {
        kernels.subtract(from + i * row, offset[i % channels()], to + i * row, row);
      }
    }
  });
  return result.view(sizes_).view(c10::kChar);
}

// Computes them by sum((x - zero) * (w + shift)) - sum(x * w) = -zero * sum(w) + shift * sum(x - zero).
void ShiftedWeight::offsets(int64_t zero_point, int32_t* to) const {
  const auto* const totals = totals_.const_data_ptr<int64_t>();
  const auto* const shifts = shifts_.const_data_ptr<int32_t>();
  const int64_t of_shift = zero_point * terms();
  for (int64_t i = 0; i < channels(); ++i) to[i] = static_cast<int32_t>(-zero_point * totals[i] - of_shift * shifts[i]);
}

at::Tensor ShiftedWeight::in_double(const at::Tensor& numbers) const {
  return numbers.to(c10::kDouble) + along_channels(shifts_);
}

}  // namespace onnxtorch
