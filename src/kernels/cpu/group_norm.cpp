#include "kernels/simd/group_norm.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/parallel.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

struct GroupNorm {
  std::optional<int64_t> groups;  // each channel is one where they are not given
  std::optional<at::Tensor> weight, bias;
  double eps;
};

at::Tensor by_aten(const at::Tensor& x, const GroupNorm& norm) {
  return norm.groups ? at::group_norm(x, *norm.groups, norm.weight, norm.bias, norm.eps)
                     : at::instance_norm(x, norm.weight, norm.bias, {}, {}, true, 0, norm.eps, false);
}

bool is_channels_last(const at::Tensor& x) {
  return x.dim() >= 3 && x.size(1) > 1 && !x.is_contiguous() && x.movedim(1, -1).is_contiguous();
}

bool fits(const at::Tensor& x, const GroupNorm& norm) {
  constexpr double kLeastEps = 1e-12;  // next to which squares that a float is too narrow for are nothing
  const auto is_one_per_channel = [&](const std::optional<at::Tensor>& t) {
    return !t || (t->dim() == 1 && t->size(0) == x.size(1) && t->scalar_type() == c10::kFloat && t->is_contiguous());
  };
  return x.scalar_type() == c10::kFloat && x.is_cpu() && x.numel() > 0 && norm.eps >= kLeastEps &&
         is_channels_last(x) && (!norm.groups || (*norm.groups > 0 && x.size(1) % *norm.groups == 0)) &&
         is_one_per_channel(norm.weight) && is_one_per_channel(norm.bias);
}

// A sample's rows of channels are normalized in blocks that stay in cache.
struct Blocks {
  int64_t rows, channels;
  int64_t rows_of_block = std::clamp<int64_t>((1 << 15) / channels, 16, 256);

  int64_t count() const { return (rows + rows_of_block - 1) / rows_of_block; }
  int64_t rows_at(int64_t block) const { return std::min(rows_of_block, rows - block * rows_of_block); }
  int64_t start(int64_t sample, int64_t block) const { return (sample * rows + block * rows_of_block) * channels; }
};

// Of each channel of a block.
struct Statistics {
  std::vector<float> mean, rest;  // the mean as a float, and what that lacks
  std::vector<float> squares;     // the sum of the squares of the distances from `mean`
};

// What is done to each channel: (x - mean) * scale + bias.
struct Affine {
  std::vector<float> mean, scale, bias;
};

// Brings the statistics of a sample's blocks together; `at` is where they start. None where they are beyond a float.
std::optional<Affine> affine(const Blocks& blocks, const Statistics& of, int64_t at, const GroupNorm& norm) {
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
  const int64_t size = channels / norm.groups.value_or(channels);
  const float* const weight = norm.weight ? norm.weight->const_data_ptr<float>() : nullptr;
  const float* const bias = norm.bias ? norm.bias->const_data_ptr<float>() : nullptr;
  for (int64_t first = 0; first < channels; first += size) {
    double center = 0, sum = 0;
    for (int64_t c = first; c < first + size; ++c) center += mean[c] / static_cast<double>(size);
    for (int64_t c = first; c < first + size; ++c) sum += spread[c] + rows * (mean[c] - center) * (mean[c] - center);
    if (!std::isfinite(sum)) return {};
    const double scale = 1 / std::sqrt(sum / (rows * static_cast<double>(size)) + norm.eps);
    for (int64_t c = first; c < first + size; ++c) {
      result.mean[c] = static_cast<float>(center);
      result.scale[c] = static_cast<float>(scale * (weight ? weight[c] : 1));
      const double lacking = center - result.mean[c];
      result.bias[c] = static_cast<float>((bias ? bias[c] : 0) - lacking * result.scale[c]);
    }
  }
  return result;
}

at::Tensor group_norm(const at::Tensor& x, const GroupNorm& norm) {
  if (!fits(x, norm)) return by_aten(x, norm);
  const int64_t batch = x.size(0);
  const Blocks blocks{c10::multiply_integers(x.sizes().slice(2)), x.size(1)};
  const int64_t count = blocks.count();
  const auto* const from = x.const_data_ptr<float>();
  const auto for_each_block = [&](const auto& visit) {
    constexpr int64_t kCost = 4;  // of an element
    parallel_for(batch * count, kCost * blocks.rows_of_block * blocks.channels, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) visit(i, i / count, i % count);
    });
  };

  const auto& kernels = for_this_cpu<GroupNormKernels>();
  const int64_t length = batch * count * blocks.channels;
  Statistics of{std::vector<float>(length), std::vector<float>(length), std::vector<float>(length)};
  for_each_block([&](int64_t i, int64_t sample, int64_t block) {
    kernels.take_statistics(from + blocks.start(sample, block), blocks.rows_at(block), blocks.channels,
                            of.mean.data() + i * blocks.channels, of.rest.data() + i * blocks.channels,
                            of.squares.data() + i * blocks.channels);
  });
  std::vector<Affine> affines;
  for (int64_t sample = 0; sample < batch; ++sample) {
    auto found = affine(blocks, of, sample * count * blocks.channels, norm);
    if (!found) return by_aten(x, norm);
    affines.push_back(*std::move(found));
  }
  at::Tensor y = work_tensor_over(x);
  auto* const to = y.mutable_data_ptr<float>();
  for_each_block([&](int64_t, int64_t sample, int64_t block) {
    const int64_t start = blocks.start(sample, block);
    const Affine& by = affines[sample];
    kernels.normalize(from + start, blocks.rows_at(block), blocks.channels,
                      {by.mean.data(), by.scale.data(), by.bias.data()}, to + start);
  });
  return y;
}

}  // namespace

void register_group_norm() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("group_norm(Tensor x, int? groups, Tensor? weight, Tensor? bias, float eps) -> Tensor",
          [](const at::Tensor& x, std::optional<int64_t> groups, const std::optional<at::Tensor>& weight,
             const std::optional<at::Tensor>& bias, double eps) { return group_norm(x, {groups, weight, bias, eps}); });
  });
}

}  // namespace onnxtorch
