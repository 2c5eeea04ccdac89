#include "kernels/simd/row_product.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "each_kernels.h"

namespace onnxtorch {
namespace {

// Gives small whole numbers, whose sums are exact in any order.
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

// Numbers in memory that ends where they do, so that a read behind them ends the process.
class Bounded {
 public:
  explicit Bounded(const std::vector<float>& numbers) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), bytes = numbers.size() * sizeof(float);
    const size_t whole = (bytes + page - 1) / page * page;
    size_ = whole + page;
    pages_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(pages_ + whole, page, PROT_NONE);
    data_ = pages_ + whole - bytes;
    std::memcpy(data_, numbers.data(), bytes);
  }
  Bounded(const Bounded&) = delete;
  Bounded& operator=(const Bounded&) = delete;
  ~Bounded() { munmap(pages_, size_); }

  const float* data() const { return reinterpret_cast<const float*>(data_); }

 private:
  size_t size_;
  char *pages_, *data_;
};

TEST(RowProduct, IsThatOfEachRow) {
  for (const RowProductKernels& kernels : each_kernels<RowProductKernels>()) {
    for (const int64_t in : {1, 5, 64}) {
      for (const int64_t out : {1, 15, 16, 17, 65, 130}) {
        for (const int64_t rows : {1, 2, 3, 6, 7, 13}) {
          const std::vector<float> weight = numbers(in * out, 7);
          const Bounded x(numbers(rows * in, 5)), bias(numbers(out, 3));
          const int64_t panels = (out + kColumnsOfPanel - 1) / kColumnsOfPanel;
          std::vector<float> laid(panels * in * kColumnsOfPanel);
          for (int64_t i = 0; i < in; ++i) {
            for (int64_t c = 0; c < out; ++c)
              laid[(c / kColumnsOfPanel * in + i) * kColumnsOfPanel + c % kColumnsOfPanel] = weight[i * out + c];
          }
          const Bounded bounded(laid);
          for (const auto multiply : {kernels.product_of_few_rows, kernels.product_of_rows}) {
            for (const float* const added : {bias.data(), static_cast<const float*>(nullptr)}) {
              for (const bool relu : {false, true}) {
                constexpr float kUntouched = 99;
                std::vector<float> y(rows * out + 1, kUntouched);
                multiply(x.data(), y.data(), rows, in, out, bounded.data(), added, relu);
                for (int64_t at = 0; at < rows * out; ++at) {
                  float expected = added ? added[at % out] : 0;
                  for (int64_t i = 0; i < in; ++i) expected += x.data()[at / out * in + i] * weight[i * out + at % out];
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

class PanelOfRows : public testing::TestWithParam<int64_t> {};

// Gives the kernels that multiply rows by a panel; a CPU with AVX2 has one.
std::vector<RowProductKernels> kernels_of_rows() {
  std::vector<RowProductKernels> result;
  for (const RowProductKernels& kernels : each_kernels<RowProductKernels>())
    if (kernels.product_of_rows_with_panel) result.push_back(kernels);
  return result;
}

enum class Addend : uint8_t { None, Other, InPlace };

TEST_P(PanelOfRows, IsMultipliedByEachOfThem) {
  constexpr float kUntouched = 99;
  const int64_t width = GetParam();
  const std::vector<float> bias = numbers(width, 3);
  if (kernels_of_rows().empty()) GTEST_SKIP() << "this CPU has no AVX2, or is held below it";
  for (const RowProductKernels& kernels : kernels_of_rows()) {
    for (const int64_t in : {1, 7, 8, 1024, 1025, 2500}) {
      const Bounded panel(numbers(in * width, 7));
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 24}) {
        const int64_t apart = width + 3;
        const Bounded x(numbers(rows * in, 5));
        const std::vector<float> others = numbers(rows * apart, 11);
        for (const int64_t columns : {width, width - 1, int64_t{1}}) {
          for (const float* const added : {bias.data(), static_cast<const float*>(nullptr)}) {
            for (const Addend addend : {Addend::None, Addend::Other, Addend::InPlace}) {
              for (const bool relu : {false, true}) {
                std::vector<float> y =
                    addend == Addend::InPlace ? others : std::vector<float>(others.size(), kUntouched);
                const std::vector<float> before = y;
                kernels.product_of_rows_with_panel({.x = x.data(),
                                                    .rows = rows,
                                                    .in = in,
                                                    .panel = panel.data(),
                                                    .width = width,
                                                    .bias = added,
                                                    .addend = addend == Addend::None      ? nullptr
                                                              : addend == Addend::InPlace ? y.data()
                                                                                          : others.data(),
                                                    .relu = relu,
                                                    .y = y.data(),
                                                    .y_apart = apart,
                                                    .columns = columns});
                for (int64_t at = 0; at < rows * apart; ++at) {
                  const int64_t row = at / apart, column = at % apart;
                  if (column >= columns) {
                    ASSERT_EQ(y[at], before[at]) << "beside row " << row;
                    continue;
                  }
                  float expected = (added ? added[column] : 0) + (addend == Addend::None ? 0 : others[at]);
                  for (int64_t i = 0; i < in; ++i)
                    expected += x.data()[row * in + i] * panel.data()[i * width + column];
                  ASSERT_EQ(y[at], relu ? std::max(expected, 0.0F) : expected)
                      << "row " << row << " of " << rows << ", column " << column << " of " << columns << ", in " << in;
                }
              }
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, PanelOfRows, testing::Values(8, 16, kWidestOfRows));
INSTANTIATE_TEST_SUITE_P(Widths, Panel, testing::Values(8, 16, 24, 32, 48, 64));

}  // namespace
}  // namespace onnxtorch
