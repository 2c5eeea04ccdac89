#include "kernels/simd/small_product.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "each_kernels.h"

namespace onnxtorch {
namespace {

std::vector<float> numbers(std::mt19937& random, int64_t count) {
  std::uniform_int_distribution<int> of(-8, 8);  // all sums of these are exact
  std::vector<float> found(count);
  for (float& element : found) element = static_cast<float>(of(random));
  return found;
}

void expect_product(const SmallProductKernels& kernels, const SmallProduct& of, std::mt19937& random) {
  const std::vector<float> a = numbers(random, of.rows * of.a_row),
                           b = numbers(random, of.depth * of.b_row + of.columns * of.b_column);
  constexpr float kUntouched = -12345;
  std::vector<float> result(of.rows * of.columns + 1, kUntouched);
  std::vector<float> room(kSmallProductRoom);
  kernels.multiply(of, a.data(), b.data(), result.data(), room.data());
  for (int64_t row = 0; row < of.rows; ++row) {
    for (int64_t column = 0; column < of.columns; ++column) {
      float sum = 0;
      for (int64_t k = 0; k < of.depth; ++k) sum += a[row * of.a_row + k] * b[k * of.b_row + column * of.b_column];
      ASSERT_EQ(result[row * of.columns + column], sum) << of.rows << "x" << of.depth << "x" << of.columns;
    }
  }
  EXPECT_EQ(result.back(), kUntouched);
}

TEST(SmallProduct, AnySizesAndStrides) {
  std::mt19937 random(0);
  for (const SmallProductKernels& kernels : each_kernels<SmallProductKernels>()) {
    for (const int64_t rows : {1, 2, 5, 6, 7, 13, 24}) {
      for (const int64_t depth : {1, 3, 8, 17, 64, 128}) {
        for (const int64_t columns : {1, 7, 15, 16, 17, 63, 64, 65, 80, 128}) {
          for (const int64_t apart : {0, 5}) {
            expect_product(kernels, {rows, depth, columns, depth + apart, columns + apart, 1}, random);
            expect_product(kernels, {rows, depth, columns, depth + apart, 1, depth + apart}, random);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace onnxtorch
