#include "kernels/simd/half_product.h"

#include <ATen/ATen.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "each_kernels.h"
#include "kernels/cpu/packed/packed.h"

namespace onnxtorch {
namespace {

// Gives the place of an element of the weight in its group.
int64_t place(int64_t in, int64_t row, int64_t column) {
  return (column / kColumnsOfPanel * in + row) * kColumnsOfPanel + column % kColumnsOfPanel;
}

TEST(HalfProduct, EachFiniteNumberIsWidenedExactly) {
  constexpr int64_t kIn = 1 << 10;  // one group holds them all
  std::vector<uint16_t> group(kIn * kColumnsOfGroup);
  for (size_t i = 0; i < group.size(); ++i) {
    group[i] = static_cast<uint16_t>(i);
    if ((i & 0x7C00U) == 0x7C00U) group[i] = 0;
  }
  for (const HalfProductKernels& kernels : each_kernels<HalfProductKernels>()) {
    const int64_t rows = kIn;  // an identity matrix: as many rows as are widened before, and then one by one
    std::vector<float> x(rows * kIn), y(rows * kColumnsOfGroup), room(kernels.room);
    for (int64_t i = 0; i < rows; ++i) x[i * kIn + i] = 1;
    const auto expect_all = [&] {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < kColumnsOfGroup; ++column) {
          const c10::Half weight(group[place(kIn, row, column)], c10::Half::from_bits());
          ASSERT_EQ(y[row * kColumnsOfGroup + column], static_cast<float>(weight));
        }
      }
    };
    kernels.multiply(x.data(), rows, kIn, group.data(), nullptr, y.data(), kColumnsOfGroup, kColumnsOfGroup,
                     room.data());
    expect_all();
    std::fill(y.begin(), y.end(), 0.0F);
    for (int64_t row = 0; row < rows; ++row) {
      kernels.multiply(x.data() + row * kIn, 1, kIn, group.data(), nullptr, y.data() + row * kColumnsOfGroup,
                       kColumnsOfGroup, kColumnsOfGroup, nullptr);
    }
    expect_all();
  }
}

TEST(HalfProduct, AnyNumberOfRowsAndColumns) {
  std::mt19937 random(0);
  std::uniform_int_distribution<int> numbers(-8, 8);  // all sums of these are exact
  for (const HalfProductKernels& kernels : each_kernels<HalfProductKernels>()) {
    std::vector<float> room(kernels.room);
    for (const int64_t in : {1, 7, 1024, 1500}) {
      std::vector<uint16_t> group(in * kColumnsOfGroup);
      for (uint16_t& element : group) element = c10::Half(static_cast<float>(numbers(random))).x;
      for (const int64_t rows : {1, 2, 3, 5, 6, 7, 13, 20}) {
        std::vector<float> x(rows * in), bias(kColumnsOfGroup);
        for (float& element : x) element = static_cast<float>(numbers(random));
        for (float& element : bias) element = static_cast<float>(numbers(random));
        for (const int64_t columns : {1, 15, 16, 17, 40, 64}) {
          for (const bool has_bias : {false, true}) {
            constexpr int64_t kApart = kColumnsOfGroup + 3;
            constexpr float kUntouched = -12345;
            std::vector<float> y(rows * kApart, kUntouched);
            kernels.multiply(x.data(), rows, in, group.data(), has_bias ? bias.data() : nullptr, y.data(), kApart,
                             columns, room.data());
            for (int64_t row = 0; row < rows; ++row) {
              for (int64_t column = 0; column < kApart; ++column) {
                float sum = has_bias && column < columns ? bias[column] : 0;
                for (int64_t k = 0; k < in && column < columns; ++k) {
                  const c10::Half weight(group[place(in, k, column)], c10::Half::from_bits());
                  sum += x[row * in + k] * static_cast<float>(weight);
                }
                ASSERT_EQ(y[row * kApart + column], column < columns ? sum : kUntouched);
              }
            }
          }
        }
      }
    }
  }
}

TEST(HalfLinear, TakesWeightsOfFiniteHalvesAlone) {
  constexpr int64_t kRows = 512, kColumns = 520;
  at::Tensor halves = at::arange(kRows * kColumns).to(at::kShort).view(at::kHalf).reshape({kRows, kColumns});
  const at::Tensor weight = halves.to(at::kFloat).nan_to_num(0, 0, 0);  // each finite one, subnormal ones among them
  EXPECT_TRUE(lies_in_half(weight));
  EXPECT_TRUE(lies_in_half(weight.t()));
  constexpr float kLargest = 65504, kLeast = 0x1p-24F;
  const float others[] = {INFINITY, NAN, 65520, kLargest * 2, 1 + 0x1p-11F, kLeast * 1.5F, kLeast / 2, 1e-40F};
  for (const float other : others) {
    for (const int64_t place : {int64_t{0}, kRows * kColumns / 2 + 7, kRows * kColumns - 1}) {
      at::Tensor changed = weight.clone();
      changed.view(-1)[place] = other;
      EXPECT_FALSE(lies_in_half(changed)) << other << " at " << place;
      EXPECT_FALSE(lies_in_half(changed.t())) << other << " at " << place;
    }
  }
  EXPECT_FALSE(lies_in_half(weight.narrow(0, 0, 8)));  // a small one
  EXPECT_FALSE(lies_in_half(weight.to(at::kDouble)));
}

}  // namespace
}  // namespace onnxtorch
