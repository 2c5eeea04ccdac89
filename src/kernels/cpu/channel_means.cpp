#include "kernels/simd/channel_means.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/cpu_tensor.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/images.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

void compute(const Images& of, const float* from, float* to) {
  constexpr int64_t kCost = 8;
  for_channels(of, ChannelMeansKernels::kMostChannels, kCost, [&](int64_t image, int64_t channel, int64_t count) {
    for_this_cpu<ChannelMeansKernels>().mean_of_rows(from + image * of.size * of.channels + channel,
                                                     to + image * of.channels + channel, of.size, count, of.channels);
  });
}

// Computes the mean of each channel. An image that lies channels-last is rows of channels.
at::Tensor channel_means(const at::Tensor& x) {
  if (!is_plain(x) || !lie_channels_last(x)) {
    std::vector<int64_t> dims(std::max<int64_t>(x.dim() - 2, 0));
    std::iota(dims.begin(), dims.end(), 2);
    return at::mean(x, dims, /*keepdim=*/true);
  }
  at::Tensor y = one_for_each_channel(x, c10::kFloat);
  compute(images(x), x.const_data_ptr<float>(), y.mutable_data_ptr<float>());
  return y;
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (!is_plain(x) || !lie_channels_last(x)) return {};
  return planned([of_x = images(x)](std::span<const TensorPlace> places) {
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
