#include "kernels/simd/row_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "each_kernels.h"

namespace onnxtorch {
namespace {

// Small whole numbers, whose sums are exact in any order.
std::vector<float> numbers(int64_t count, int64_t step) {
  std::vector<float> result(count);
  for (int64_t i = 0; i < count; ++i) result[i] = static_cast<float>(i * step % 17 - 8);
  return result;
}

class Panel : public testing::TestWithParam<int64_t> {};

TEST_P(Panel, IsMultipliedWhole) {
  constexpr float kUntouched = 99;
  const int64_t width = GetParam();
  ASSERT_TRUE(is_panel(width));
  const std::vector<float> bias = numbers(width, 3);
  for (const RowProductKernels& kernels : each_kernels<RowProductKernels>()) {
    for (const int64_t in : {1, 2, 3, 7, 8, 9, 31, 768}) {
      const std::vector<float> x = numbers(in, 5), panel = numbers(in * width, 7);
      for (const int64_t columns : {width, width - 1, int64_t{1}}) {
        for (const float* const added : {bias.data(), static_cast<const float*>(nullptr)}) {
          std::vector<float> y(width, kUntouched);
          kernels.product_with_panel(x.data(), y.data(), in, panel.data(), width, added, columns);
          for (int64_t column = 0; column < width; ++column) {
            float expected = added ? added[column] : 0;
            for (int64_t i = 0; i < in; ++i) expected += x[i] * panel[i * width + column];
            ASSERT_EQ(y[column], column < columns ? expected : kUntouched) << in << " rows, column " << column;
          }
        }
      }
    }
  }
}

TEST(RowProduct, IsThatOfEachRow) {
  for (const RowProductKernels& kernels : each_kernels<RowProductKernels>()) {
    for (const int64_t in : {1, 5, 64}) {
      for (const int64_t out : {1, 15, 16, 17, 65, 130}) {
        for (const int64_t rows : {1, 2, 3, 6, 7, 13}) {
          const std::vector<float> x = numbers(rows * in, 5), bias = numbers(out, 3), weight = numbers(in * out, 7);
          const int64_t panels = (out + kColumnsOfPanel - 1) / kColumnsOfPanel;
          std::vector<float> laid(panels * in * kColumnsOfPanel);
          for (int64_t i = 0; i < in; ++i) {
            for (int64_t c = 0; c < out; ++c)
              laid[(c / kColumnsOfPanel * in + i) * kColumnsOfPanel + c % kColumnsOfPanel] = weight[i * out + c];
          }
          for (const auto multiply : {kernels.product_of_few_rows, kernels.product_of_rows}) {
            for (const float* const added : {bias.data(), static_cast<const float*>(nullptr)}) {
              for (const bool relu : {false, true}) {
                constexpr float kUntouched = 99;
                std::vector<float> y(rows * out + 1, kUntouched);
                multiply(x.data(), y.data(), rows, in, out, laid.data(), added, relu);
                for (int64_t at = 0; at < rows * out; ++at) {
                  float expected = added ? added[at % out] : 0;
                  for (int64_t i = 0; i < in; ++i) expected += x[at / out * in + i] * weight[i * out + at % out];
                  ASSERT_EQ(y[at], relu ? std::max(expected, 0.0F) : expected) << rows << "x" << in << "x" << out;
                }
                ASSERT_EQ(y.back(), kUntouched);
              }
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, Panel, testing::Values(8, 16, 24, 32, 48, 64));

}  // namespace
}  // namespace onnxtorch
