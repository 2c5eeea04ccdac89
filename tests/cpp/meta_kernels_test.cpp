#include "kernels/standard/meta_kernels.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace onnxtorch {
namespace {

using at::Tensor;

// Operators of two tensors: x of 2 x 3 x 8 x 6 elements, y of 3 x 1 x 6; on the CPU or on the meta device.
using Call = std::function<std::vector<Tensor>(const Tensor&, const Tensor&)>;

const std::vector<std::pair<std::string, Call>>& calls() {
  using Ints = std::vector<int64_t>;
  const auto some = [](const Tensor& x, at::IntArrayRef sizes) { return at::ones(sizes, x.options()); };
  const auto longs = [](const Tensor& x, at::IntArrayRef sizes) {
    return at::zeros(sizes, x.options().dtype(at::kLong));
  };
  static const std::vector<std::pair<std::string, Call>> all = {
      {"unary",
       [](auto& x, auto&) -> std::vector<Tensor> {
         return {x.relu(), at::hardswish(x), x.abs(), x.exp(), at::gelu(x), x.round(), x.flip({1}), x.roll({1}, {2})};
       }},
      {"abs of complex numbers", [](auto& x, auto&) -> std::vector<Tensor> { return {x.to(at::kComplexFloat).abs()}; }},
      {"truth",
       [](auto& x, auto& y) -> std::vector<Tensor> {
         return {x.isnan(), x.isinf(), x.logical_not(), x.logical_and(y), x.eq(y), x.lt(2), x.signbit(), x.any()};
       }},
      {"binary",
       [](auto& x, auto& y) -> std::vector<Tensor> {
         return {x + y, x - y, x * y, x / y, x.pow(2), at::maximum(x, y), x + 1, 1 - x, x.to(at::kInt) / 2};
       }},
      {"where",
       [](auto& x, auto& y) -> std::vector<Tensor> {
         return {at::where(x > 0, x, y), at::where(y > 0, x.to(at::kInt), y.to(at::kDouble)), at::where(x > 0, y, 0.5)};
       }},
      {"indices",
       [&](auto& x, auto&) -> std::vector<Tensor> {
         return {x.index_select(-2, longs(x, {5})), at::embedding(some(x, {7, 4}), longs(x, {2, 3})),
                 x.gather(1, longs(x, {2, 1, 8, 6})), x.index({longs(x, {4})}),
                 x.scatter(3, longs(x, {2, 3, 8, 1}), 1)};
       }},
      {"convolutions",
       [&](auto& x, auto&) -> std::vector<Tensor> {
         const Ints two{2, 2}, one{1, 1};
         return {at::conv2d(x, some(x, {4, 3, 3, 2}), some(x, {4}), two, one, two),
                 at::conv2d(x, some(x, {6, 1, 2, 2}), {}, one, Ints{0, 1}, one, 3),
                 at::conv1d(x.flatten(2), some(x, {5, 3, 4}), {}, 3, 2),
                 at::conv_transpose2d(x, some(x, {3, 2, 3, 3}), {}, two, one, one, 1, two),
                 at::conv_transpose2d(x, some(x, {3, 2, 3, 3}), {}, one, one, Ints{0, 0}, 3)};
       }},
      {"normalizations",
       [&](auto& x, auto&) -> std::vector<Tensor> {
         const auto scale = some(x, {3});
         return {at::batch_norm(x, scale, scale, scale, scale, false, 0.1, 1e-5, false),
                 at::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false),
                 at::layer_norm(x, {8, 6}),
                 at::group_norm(x, 3),
                 std::get<1>(at::native_layer_norm(x, {6}, {}, {}, 1e-5)),
                 std::get<2>(at::native_batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5))};
       }},
      {"reductions",
       [](auto& x, auto&) -> std::vector<Tensor> {
         return {x.sum(),
                 x.sum({1, 2}),
                 x.mean({1}, true),
                 x.max(),
                 x.min(),
                 std::get<1>(x.max(2)),
                 x.argmax(),
                 x.var(Ints{1, -1}, 0, true),
                 x.std(Ints{0}, 1),
                 std::get<0>(at::var_mean(x, Ints{2}, 1)),
                 x.amax({3}),
                 x.cumsum(1),
                 x.to(at::kInt).sum(),
                 x.logsumexp({1})};
       }},
      {"products",
       [&](auto& x, auto&) -> std::vector<Tensor> {
         const auto square = some(x, {6, 6});
         return {at::matmul(x, square),
                 square.mm(square),
                 square.mv(square[0]),
                 square[0].dot(square[0]),
                 at::linear(x, square, square[0]),
                 at::scaled_dot_product_attention(x, x, x)};
       }},
      {"recurrent layers",
       [&](auto& x, auto&) -> std::vector<Tensor> {
         const auto steps = x.flatten(1, 2), state = some(x, {2, 24, 5});
         const auto layer = [&](int64_t gates) {
           const auto input = some(x, {gates * 5, 6}), hidden = some(x, {gates * 5, 5});
           return std::vector<Tensor>{input, hidden, input, hidden};
         };
         const auto [y, h, c] = at::lstm(steps, {state, state + 1}, layer(4), false, 1, 0, false, true, false);
         const auto [gru, gru_h] = at::gru(steps, state, layer(3), false, 1, 0, false, true, false);
         const auto [rnn, rnn_h] = at::rnn_tanh(steps, state, layer(1), false, 1, 0, false, true, false);
         return {y,     h,   c,     gru,
                 gru_h, rnn, rnn_h, std::get<0>(at::rnn_relu(steps, state, layer(1), false, 1, 0, false, true, false))};
       }},
      {"in place",
       [](auto& x, auto& y) -> std::vector<Tensor> {
         const Tensor copy = x.clone();
         copy.add_(y).mul_(y).sigmoid_().tanh_().fill_(1);
         return {copy, copy.masked_fill(copy > 0, 2), at::zeros_like(copy), at::full({3}, 2, copy.options())};
       }},
      {"spatial",
       [&](auto& x, auto&) -> std::vector<Tensor> {
         const Ints two{2, 2}, one{1, 1};
         const auto volume = x.unsqueeze(0);
         return {std::get<0>(at::max_pool2d_with_indices(x, two, two, one, one, true)),
                 at::avg_pool2d(x, two),
                 std::get<1>(at::max_pool3d_with_indices(volume, 2, Ints{1, 2, 3}, Ints{1, 0, 1}, 1, true)),
                 at::grid_sampler_2d(x, some(x, {2, 5, 4, 2}), 0, 0, true),
                 at::grid_sampler_3d(volume, some(x, {1, 5, 4, 3, 3}), 0, 0, true),
                 at::pixel_shuffle(x.repeat({1, 4, 1, 1}), 2),
                 at::upsample_nearest2d(x, Ints{3, 5}),
                 at::constant_pad_nd(x, {1, 2})};
       }},
      {"movements",
       [&](auto& x, auto& y) -> std::vector<Tensor> {
         return {at::cat({x, x}, 2),
                 at::stack({y, y}),
                 x.transpose(0, 1),
                 x.reshape({6, -1}),
                 y.expand({2, 3, 8, 6}),
                 x.unfold(3, 2, 2),
                 x.repeat({2, 1, 1, 1}),
                 x.tril(),
                 std::get<1>(x.sort(2)),
                 std::get<0>(x.topk(2)),
                 at::arange(0, 5, 2, x.options())};
       }},
  };
  return all;
}

TEST(MetaKernels, GiveTheSizesThatTheOperatorsGive) {
  const Tensor x = at::rand({2, 3, 8, 6}), y = at::rand({3, 1, 6});
  for (const auto& [name, call] : calls()) {
    SCOPED_TRACE(name);
    const auto expected = call(x, y);
    std::vector<Tensor> found;
    {
      const MetaKernelsInCpp in_cpp;
      found = call(x.to(at::kMeta), y.to(at::kMeta));
    }
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_TRUE(found[i].is_meta());
      EXPECT_EQ(found[i].sizes(), expected[i].sizes());
      EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type());
    }
  }
}

TEST(MetaKernels, LeaveOtherDevicesAlone) {
  const MetaKernelsInCpp in_cpp;
  const Tensor x = at::ones({2, 2});
  EXPECT_TRUE(at::equal(x.relu().mm(x), at::full({2, 2}, 2.0)));
}

TEST(MetaKernels, RefuseWhatFollowsFromValues) {
  const MetaKernelsInCpp in_cpp;
  const Tensor x = at::ones({2, 2}, at::kMeta);
  EXPECT_THROW(x.nonzero(), c10::Error);
  EXPECT_THROW(x.sum().item(), c10::Error);
}

TEST(MetaKernels, RefuseConvolutionsOfOtherSizes) {
  const MetaKernelsInCpp in_cpp;
  const Tensor x = at::ones({1, 3, 8, 8}, at::kMeta);
  EXPECT_THROW(at::conv2d(x, at::ones({4, 2, 3, 3}, at::kMeta)), c10::Error);
}

}  // namespace
}  // namespace onnxtorch
