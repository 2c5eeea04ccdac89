#include "kernels/simd/channel_means.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/rows.h"

namespace onnxtorch {
namespace {

struct Images {
  int64_t count, channels, rows;
};

bool lie_channels_last(const at::Tensor& x) { return is_plain(x) && x.dim() >= 3 && x.movedim(1, -1).is_contiguous(); }

Images images(const at::Tensor& x) { return {x.size(0), x.size(1), x.numel() / x.size(0) / x.size(1)}; }

void compute(const Images& of, const float* from, float* to) {
  constexpr int64_t kStrip = ChannelMeansKernels::kMostChannels;
  const auto [count_of_images, channels, rows] = of;
  const int64_t parts = (channels + kStrip - 1) / kStrip;
  share_rows(count_of_images * parts, rows * kStrip,
             [&, channels = channels, rows = rows](int64_t first, int64_t count) {
               for (int64_t i = first; i < first + count; ++i) {
                 const int64_t sample = i / parts, channel = i % parts * kStrip;
                 for_this_cpu<ChannelMeansKernels>().mean_of_rows(from + sample * rows * channels + channel,
                                                                  to + sample * channels + channel, rows,
                                                                  std::min(kStrip, channels - channel), channels);
               }
             });
}

// The mean of each channel, with dimensions of size 1 for those that are gone. An image that lies channels-last is rows
// of channels.
at::Tensor channel_means(const at::Tensor& x) {
  if (!lie_channels_last(x)) {
    std::vector<int64_t> dims(std::max<int64_t>(x.dim() - 2, 0));
    std::iota(dims.begin(), dims.end(), 2);
    return at::mean(x, dims, /*keepdim=*/true);
  }
  std::vector<int64_t> sizes(x.dim(), 1);
  std::ranges::copy(x.sizes().slice(0, 2), sizes.begin());
  at::Tensor y = at::empty(sizes, x.options());
  compute(images(x), x.const_data_ptr<float>(), y.mutable_data_ptr<float>());
  return y;
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (!lie_channels_last(x)) return {};
  return planned([of_x = images(x)](std::span<const Place> places) {
    compute(of_x, places[0].as<float>(), places[1].as<float>());
  });
}

}  // namespace

void register_channel_means() {
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("channel_means(Tensor x) -> Tensor", channel_means); });
  register_planner("onnx_torch::channel_means", plan);
}

}  // namespace onnxtorch
