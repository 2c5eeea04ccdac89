// The functions of vectors, by kernels that give them as they are, for each kind of CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "each_kernels.h"
#include "kernels/simd/chain.h"
#include "kernels/simd/recurrent.h"

namespace onnxtorch {
namespace {

using Floats = std::vector<float>;
constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

Floats tanh_of(const RecurrentKernels& kernels, const Floats& x) {
  Floats zeros(x.size(), -0.0F), y(x.size());
  kernels.tanh_step({x.data(), zeros.data()}, y.data(), {1, std::ssize(x), nullptr});
  return y;
}

Floats sigmoid_of(const RecurrentKernels& kernels, const Floats& x) {
  Floats input(3 * x.size()), y(2 * x.size(), -0.0F), h(x.size()), kept(x.size());
  std::ranges::copy(x, input.begin());
  kernels.reset_step({input.data(), y.data()}, h.data(), kept.data(), {1, std::ssize(x), nullptr});
  y.resize(x.size());
  return y;
}

Floats chain_of(chain::Op op, const chain::Kernels& kernels, const Floats& x) {
  chain::Loop loop;
  loop.sources = {{chain::Source::Kind::Direct, chain::Type::Float, {}, {}}};
  loop.result_types = {chain::Type::Float};
  loop.steps = {{.op = op, .type = chain::Type::Float, .result = 1, .operands = {0, 0, 0}, .a = 0, .b = 0}};
  Floats y(x.size());
  const void* const source = x.data();
  void* const result = y.data();
  kernels.run(loop, &source, &result, 0, std::ssize(x));
  return y;
}

// Gives numbers of sizes up to `most`, of either sign.
Floats numbers(float most) {
  constexpr int kSteps = 1'000'000;
  Floats x;
  for (int step = 0; step < kSteps; ++step) {
    const auto size = static_cast<float>(most * std::exp(-70.0 * step / kSteps));
    x.insert(x.end(), {size, -size});
  }
  return x;
}

// Gives the largest error of normal numbers, in units in the last place of the exact result.
template <typename Exact>
double largest_error(const Floats& x, const Floats& y, const Exact& exact) {
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(static_cast<double>(x[i]));
    if (std::abs(expected) < std::numeric_limits<float>::min()) continue;
    const double unit = std::ldexp(std::numeric_limits<float>::epsilon(), std::ilogb(expected));
    largest = std::max(largest, std::abs(y[i] - expected) / unit);
  }
  return largest;
}

TEST(VectorMath, ExpIsRightToOneUnit) {
  for (const chain::Kernels& kernels : each_kernels<chain::Kernels>()) {
    const Floats x = numbers(88);
    EXPECT_LE(largest_error(x, chain_of(chain::Op::Exp, kernels, x), [](double of) { return std::exp(of); }), 1);
    const Floats ends = chain_of(chain::Op::Exp, kernels, {kInfinity, -kInfinity, 89, -104, 0, kNan});
    EXPECT_EQ(Floats(ends.begin(), ends.end() - 1), Floats({kInfinity, 0, kInfinity, 0, 1}));
    EXPECT_TRUE(std::isnan(ends.back()));
  }
}

TEST(VectorMath, ErfIsRightToTwoUnits) {
  for (const chain::Kernels& kernels : each_kernels<chain::Kernels>()) {
    const Floats x = numbers(100);
    const auto erf = [&](const Floats& of) { return chain_of(chain::Op::Erf, kernels, of); };
    EXPECT_LE(largest_error(x, erf(x), [](double of) { return std::erf(of); }), 2);
    const Floats ends = erf({kInfinity, -kInfinity, -0.0F, kNan});
    EXPECT_EQ(Floats(ends.begin(), ends.end() - 1), Floats({1, -1, 0}));
    EXPECT_TRUE(std::signbit(ends[2]));
    EXPECT_TRUE(std::isnan(ends.back()));
  }
}

// The last bits of a NaN are any, and exponents are sums of bits.
TEST(VectorMath, EachNanStaysOne) {
  Floats x;
  for (uint32_t bits = 1; bits < 1 << 10; ++bits) {
    x.insert(x.end(), {std::bit_cast<float>(0x7F800000 | bits), std::bit_cast<float>(0xFFC00000 | bits)});
  }
  const auto expect_nans = [](const Floats& y) {
    EXPECT_TRUE(std::ranges::all_of(y, [](float of) { return std::isnan(of); }));
  };
  for (const RecurrentKernels& kernels : each_kernels<RecurrentKernels>()) {
    expect_nans(tanh_of(kernels, x));
    expect_nans(sigmoid_of(kernels, x));
  }
  for (const chain::Kernels& kernels : each_kernels<chain::Kernels>()) {
    for (const chain::Op op : {chain::Op::Exp, chain::Op::Erf, chain::Op::Gelu, chain::Op::GeluTanh})
      expect_nans(chain_of(op, kernels, x));
  }
}

TEST(VectorMath, TanhIsRightToTwoUnits) {
  for (const RecurrentKernels& kernels : each_kernels<RecurrentKernels>()) {
    const Floats x = numbers(100);
    EXPECT_LE(largest_error(x, tanh_of(kernels, x), [](double of) { return std::tanh(of); }), 2);
    const Floats ends = tanh_of(kernels, {kInfinity, -kInfinity, -0.0F, kNan});
    EXPECT_EQ(Floats(ends.begin(), ends.end() - 1), Floats({1, -1, 0}));
    EXPECT_TRUE(std::signbit(ends[2]));
    EXPECT_TRUE(std::isnan(ends.back()));
  }
}

TEST(VectorMath, SigmoidIsRightToThreeUnits) {
  for (const RecurrentKernels& kernels : each_kernels<RecurrentKernels>()) {
    const Floats x = numbers(80);
    EXPECT_LE(largest_error(x, sigmoid_of(kernels, x), [](double of) { return 1 / (1 + std::exp(-of)); }), 2.5);
    const Floats ends = sigmoid_of(kernels, {kInfinity, -kInfinity, 0, kNan});
    EXPECT_EQ(Floats(ends.begin(), ends.end() - 1), Floats({1, 0, 0.5}));
    EXPECT_TRUE(std::isnan(ends.back()));
  }
}

}  // namespace
}  // namespace onnxtorch
