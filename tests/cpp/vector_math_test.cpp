#include "kernels/simd/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace onnxtorch {
namespace {

// The largest relative error over numbers of sizes up to `most`, of either sign.
template <typename Ours, typename Exact>
double largest_error(float most, const Ours& ours, const Exact& exact) {
  double largest = 0;
  constexpr int kSteps = 7'000'000;
  for (int step = 0; step < kSteps; ++step) {
    const auto x = static_cast<float>(most * std::exp(-70.0 * step / kSteps));
    for (const float of : {x, -x}) {
      const double expected = exact(static_cast<double>(of));
      largest = std::max(largest, std::abs(ours(of) - expected) / std::abs(expected));
    }
  }
  return largest;
}

constexpr double kUnit = std::numeric_limits<float>::epsilon();
constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

TEST(VectorMath, TanhIsRightToTwoUnits) {
  EXPECT_LE(largest_error(100, [](float x) { return tanh_of(x); }, [](double x) { return std::tanh(x); }), 2 * kUnit);
  EXPECT_EQ(tanh_of(kInfinity), 1);
  EXPECT_EQ(tanh_of(-kInfinity), -1);
  EXPECT_TRUE(std::signbit(tanh_of(-0.0F)));
  EXPECT_TRUE(std::isnan(tanh_of(kNan)));
}

TEST(VectorMath, SigmoidIsRightToTwoUnits) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LE(largest_error(80, [](float x) { return sigmoid_of(x); }, sigmoid), 2 * kUnit);
  EXPECT_EQ(sigmoid_of(kInfinity), 1);
  EXPECT_LE(sigmoid_of(-kInfinity), std::numeric_limits<float>::min());
  EXPECT_TRUE(std::isnan(sigmoid_of(kNan)));
}

}  // namespace
}  // namespace onnxtorch
