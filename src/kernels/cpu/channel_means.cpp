#include "kernels/simd/channel_means.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/registered.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/rows.h"

namespace onnxtorch {
namespace {

// The mean of each channel, with dimensions of size 1 for those that are gone. An image that lies channels-last is rows
// of channels.
at::Tensor channel_means(const at::Tensor& x) {
  const bool fits = is_plain(x) && x.dim() >= 3 && x.movedim(1, -1).is_contiguous();
  if (!fits) {
    std::vector<int64_t> dims(std::max<int64_t>(x.dim() - 2, 0));
    std::iota(dims.begin(), dims.end(), 2);
    return at::mean(x, dims, /*keepdim=*/true);
  }
  const int64_t channels = x.size(1), rows = x.numel() / x.size(0) / channels;
  std::vector<int64_t> sizes(x.dim(), 1);
  std::ranges::copy(x.sizes().slice(0, 2), sizes.begin());
  at::Tensor y = at::empty(sizes, x.options());
  const auto* const from = x.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  constexpr int64_t kStrip = ChannelMeansKernels::kMostChannels;
  const int64_t parts = (channels + kStrip - 1) / kStrip;
  share_rows(x.size(0) * parts, rows * kStrip, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t sample = i / parts, channel = i % parts * kStrip;
      for_this_cpu<ChannelMeansKernels>().mean_of_rows(from + sample * rows * channels + channel,
                                                       to + sample * channels + channel, rows,
                                                       std::min(kStrip, channels - channel), channels);
    }
  });
  return y;
}

}  // namespace

void register_channel_means() {
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("channel_means(Tensor x) -> Tensor", channel_means); });
}

}  // namespace onnxtorch
