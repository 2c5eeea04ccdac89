#include "kernels/simd/group_norm.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

struct GroupNorm {
  std::optional<int64_t> groups;  // each channel is a group where this is not given
  std::optional<at::Tensor> weight, bias;
  double eps;
};

at::Tensor by_aten(const at::Tensor& x, const GroupNorm& norm) {
  if (x.numel() == 0) return at::empty_like(x);  // instance_norm takes no empty batch, group_norm no empty images
  return norm.groups ? at::group_norm(x, *norm.groups, norm.weight, norm.bias, norm.eps)
                     : at::instance_norm(x, norm.weight, norm.bias, {}, {}, true, 0, norm.eps, false);
}

bool is_channels_last(const at::Tensor& x) {
  return x.dim() >= 3 && x.size(1) > 1 && !x.is_contiguous() && x.movedim(1, -1).is_contiguous();
}

// Tells whether each channel of x is a contiguous plane with enough elements for SIMD vectors.
bool has_planes(const at::Tensor& x) {
  constexpr int64_t kLeastPlane = 32;
  return x.dim() >= 3 && x.is_contiguous() && c10::multiply_integers(x.sizes().slice(2)) >= kLeastPlane;
}

bool fits(const at::Tensor& x, const GroupNorm& norm) {
  // With an eps of at least this, squares that underflow float32 do not change the result.
  constexpr double kLeastEps = 1e-12;
  const auto is_one_per_channel = [&](const std::optional<at::Tensor>& t) {
    return !t || (t->dim() == 1 && t->size(0) == x.size(1) && t->scalar_type() == c10::kFloat && t->is_contiguous());
  };
  return x.scalar_type() == c10::kFloat && x.is_cpu() && x.numel() > 0 && norm.eps >= kLeastEps &&
         (is_channels_last(x) || has_planes(x)) &&
         (!norm.groups || (*norm.groups > 0 && x.size(1) % *norm.groups == 0)) && is_one_per_channel(norm.weight) &&
         is_one_per_channel(norm.bias);
}

// The blocks in which a channel's elements are normalized, so that they stay in cache: rows of all channels, or parts
// of its plane.
struct Blocks {
  int64_t rows, channels;  // a row has an element of each channel
  bool planes;
  int64_t rows_of_block = planes ? 1 << 14 : std::clamp<int64_t>((1 << 15) / channels, 16, 256);

  int64_t count() const { return (rows + rows_of_block - 1) / rows_of_block; }
  int64_t rows_at(int64_t block) const { return std::min(rows_of_block, rows - block * rows_of_block); }
  int64_t start(int64_t sample, int64_t block) const { return (sample * rows + block * rows_of_block) * channels; }
  int64_t plane_start(int64_t sample, int64_t channel, int64_t block) const {
    return (sample * channels + channel) * rows + block * rows_of_block;
  }
};

// The statistics of each channel of a block.
struct Statistics {
  std::vector<float> mean, rest;  // the mean as a float, and what the float lacks
  std::vector<float> squares;     // the sum of the squares of the distances from `mean`
};

// The function of each channel's elements: (x - mean) * scale + bias.
struct Affine {
  std::vector<float> mean, scale, bias;
};

// The sizes that decide how a normalization is done, and its eps.
struct Normalization {
  int64_t batch;
  Blocks blocks;
  int64_t group;  // the number of channels of a group
  double eps;

  Normalization(const at::Tensor& x, const GroupNorm& norm)
      : batch(x.size(0)),
        blocks{c10::multiply_integers(x.sizes().slice(2)), x.size(1), x.is_contiguous()},
        group(x.size(1) / norm.groups.value_or(x.size(1))),
        eps(norm.eps) {}
};

// The given weight and bias; each is null where there is none.
struct ChannelAffine {
  const float *weight, *bias;
};

// Brings the statistics of a sample's blocks together; `at` is where they start. Returns none where they are beyond a
// float.
std::optional<Affine> affine(const Normalization& by, const Statistics& of, int64_t at, const ChannelAffine& given) {
  const Blocks& blocks = by.blocks;
  const int64_t channels = blocks.channels;
  const auto rows = static_cast<double>(blocks.rows);
  const auto mean_at = [&](int64_t i) { return static_cast<double>(of.mean[i]) + of.rest[i]; };
  std::vector<double> mean(channels), spread(channels);
  for (int64_t b = 0; b < blocks.count(); ++b) {
    const double share = static_cast<double>(blocks.rows_at(b)) / rows;
    for (int64_t c = 0; c < channels; ++c) mean[c] += share * mean_at(at + b * channels + c);
  }
  for (int64_t b = 0; b < blocks.count(); ++b) {
    const auto count = static_cast<double>(blocks.rows_at(b));
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t i = at + b * channels + c;
      const double rest = of.rest[i], distance = mean_at(i) - mean[c];
      spread[c] += of.squares[i] + count * (distance * distance - rest * rest);
    }
  }

  Affine result{std::vector<float>(channels), std::vector<float>(channels), std::vector<float>(channels)};
  for (int64_t first = 0; first < channels; first += by.group) {
    const auto size = static_cast<double>(by.group);
    double center = 0, sum = 0;
    for (int64_t c = first; c < first + by.group; ++c) center += mean[c] / size;
    for (int64_t c = first; c < first + by.group; ++c)
      sum += spread[c] + rows * (mean[c] - center) * (mean[c] - center);
    if (!std::isfinite(sum)) return {};
    const double scale = 1 / std::sqrt(sum / (rows * size) + by.eps);
    for (int64_t c = first; c < first + by.group; ++c) {
      result.mean[c] = static_cast<float>(center);
      result.scale[c] = static_cast<float>(scale * (given.weight ? given.weight[c] : 1));
      if (!std::isfinite(result.scale[c])) return {};
      const double lacking = center - result.mean[c];
      result.bias[c] = static_cast<float>((given.bias ? given.bias[c] : 0) - lacking * result.scale[c]);
    }
  }
  return result;
}

constexpr int64_t kCost = 4;  // of an element

// Calls the function with each sample and each of its blocks, whose rows are of all channels.
template <typename F>
void for_each_block(const Normalization& by, const F& visit) {
  const int64_t count = by.blocks.count();
  parallel_for(by.batch * count, kCost * by.blocks.rows_of_block * by.blocks.channels, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) visit(i / count, i % count);
  });
}

// Calls the function with each sample, each of its channels, and each block of the channel's plane.
template <typename F>
void for_each_part(const Normalization& by, const F& visit) {
  const int64_t count = by.blocks.count(), channels = by.blocks.channels;
  const int64_t elements = std::min(by.blocks.rows, by.blocks.rows_of_block);
  parallel_for(by.batch * channels * count, kCost * elements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) visit(i / count / channels, i / count % channels, i % count);
  });
}

Statistics statistics(const Normalization& by, const float* x) {
  const Blocks& blocks = by.blocks;
  const int64_t count = blocks.count(), length = by.batch * count * blocks.channels;
  const auto& kernels = for_this_cpu<GroupNormKernels>();
  Statistics of{std::vector<float>(length), std::vector<float>(length), std::vector<float>(length)};
  if (blocks.planes) {
    for_each_part(by, [&](int64_t sample, int64_t channel, int64_t block) {
      const int64_t at = (sample * count + block) * blocks.channels + channel;
      kernels.take_plane_statistics(x + blocks.plane_start(sample, channel, block), blocks.rows_at(block), &of.mean[at],
                                    &of.rest[at], &of.squares[at]);
    });
  } else {
    for_each_block(by, [&](int64_t sample, int64_t block) {
      const int64_t at = (sample * count + block) * blocks.channels;
      kernels.take_statistics(x + blocks.start(sample, block), blocks.rows_at(block), blocks.channels, &of.mean[at],
                              &of.rest[at], &of.squares[at]);
    });
  }
  return of;
}

void normalize(const Normalization& by, const float* x, const std::vector<Affine>& affines, float* y) {
  const Blocks& blocks = by.blocks;
  const auto& kernels = for_this_cpu<GroupNormKernels>();
  if (blocks.planes) {
    for_each_part(by, [&](int64_t sample, int64_t channel, int64_t block) {
      const int64_t start = blocks.plane_start(sample, channel, block);
      const auto& [mean, scale, bias] = affines[sample];
      kernels.normalize_plane(x + start, blocks.rows_at(block), mean[channel], scale[channel], bias[channel],
                              y + start);
    });
  } else {
    for_each_block(by, [&](int64_t sample, int64_t block) {
      const int64_t start = blocks.start(sample, block);
      const auto& [mean, scale, bias] = affines[sample];
      kernels.normalize(x + start, blocks.rows_at(block), blocks.channels, {mean.data(), scale.data(), bias.data()},
                        y + start);
    });
  }
}

// Normalizes the tensor. Returns false where a sum of squares or a scale is beyond a float: then nothing is written.
bool compute(const Normalization& by, const float* x, const ChannelAffine& given, float* y) {
  const Statistics of = statistics(by, x);
  std::vector<Affine> affines;
  for (int64_t sample = 0; sample < by.batch; ++sample) {
    auto found = affine(by, of, sample * by.blocks.count() * by.blocks.channels, given);
    if (!found) return false;
    affines.push_back(*std::move(found));
  }
  normalize(by, x, affines, y);
  return true;
}

at::Tensor group_norm(const at::Tensor& x, const GroupNorm& norm) {
  if (!fits(x, norm)) return by_aten(x, norm);
  const auto data = [](const std::optional<at::Tensor>& t) { return t ? t->const_data_ptr<float>() : nullptr; };
  at::Tensor y = work_tensor_over(x);
  const bool is_done = compute(Normalization(x, norm), x.const_data_ptr<float>(), {data(norm.weight), data(norm.bias)},
                               y.mutable_data_ptr<float>());
  return is_done ? y : by_aten(x, norm);
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  const GroupNorm norm{of.arguments[1].toOptional<int64_t>(), of.arguments[2].toOptional<at::Tensor>(),
                       of.arguments[3].toOptional<at::Tensor>(), of.arguments[4].toDouble()};
  if (!fits(x, norm) || of.results[0].strides() != x.strides()) return {};
  const size_t weight = norm.weight ? 1 : 0, bias = norm.bias ? weight + 1 : 0, result = std::max(weight, bias) + 1;
  return planned(
      [=, by = Normalization(x, norm)](std::span<const TensorPlace> places) {
        const auto data = [&](size_t place) { return place > 0 ? places[place].as<float>() : nullptr; };
        const bool is_done = compute(by, places[0].as<float>(), {data(weight), data(bias)}, places[result].as<float>());
        TORCH_CHECK(is_done, "a sum of squares or a scale is beyond a float");  // so that the run is left to ATen
      },
      {{.result = result, .argument = 0}});
}

}  // namespace

void register_group_norm() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("group_norm(Tensor x, int? groups, Tensor? weight, Tensor? bias, float eps) -> Tensor",
          [](const at::Tensor& x, std::optional<int64_t> groups, const std::optional<at::Tensor>& weight,
             const std::optional<at::Tensor>& bias, double eps) { return group_norm(x, {groups, weight, bias, eps}); });
  });
  register_planner("onnx_torch::group_norm", plan);
}

}  // namespace onnxtorch
