#include "lower/simd/panel_product.h"

#include <ATen/Version.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace onnxtorch {
namespace {

// The kernels for each capability that this CPU has, or the environment leaves it.
std::vector<IntegerKernels> each_kernels() {
  std::vector<IntegerKernels> result{IntegerKernels::DEFAULT};
  const std::string capability = at::get_cpu_capability();
  if (capability != "DEFAULT") result.push_back(IntegerKernels::AVX2);
  if (capability == "AVX512") result.push_back(IntegerKernels::AVX512);
  return result;
}

int64_t panels_for(int64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

// A matrix of int8 in panels.
template <typename Weight>
std::vector<int8_t> in_panels(int64_t rows, int64_t columns, const Weight& weight) {
  const int64_t pairs = (rows + 1) / 2;
  std::vector<int8_t> result(panels_for(columns) * pairs * kPanelPair);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t pair = column / kPanelColumns * pairs + row / 2;
      result[(pair * kPanelColumns + column % kPanelColumns) * 2 + row % 2] = weight(row, column);
    }
  }
  return result;
}

// Of which neighbouring products, added in 16 bits, would saturate.
struct Extremes {
  uint8_t x;
  int8_t weight;
};
class IntegerKernel : public testing::TestWithParam<Extremes> {};

TEST_P(IntegerKernel, SumsOfPanelsAreExact) {
  constexpr int64_t kColumns = kPanelColumns;
  const auto [x, weight] = GetParam();
  for (const IntegerKernels& kernels : each_kernels()) {
    for (const int64_t rows : {1, 2, 3, 5, 6, 7, 8, 9, 17}) {
      for (const int64_t terms : {1, 2, 31, 300, 4096}) {
        Patches p{kNoWindows, kNoWindows, kNoWindows, terms, 0, terms, 0, 0};
        p.rows.size = p.rows.count = rows;
        const std::vector<uint8_t> bytes(rows * terms, x);
        std::vector<int16_t> widened(rows * 2 * p.pairs());
        kernels.widen_patches(bytes.data(), p, 0, rows, widened.data());
        const auto panel = in_panels(terms, kColumns, [&](int64_t, int64_t) { return weight; });
        std::vector<int32_t> sums(rows * kColumns);
        kernels.sum_panel(widened.data(), rows, p.pairs(), panel.data(), sums.data());
        for (const int32_t sum : sums) ASSERT_EQ(sum, terms * x * weight);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Extremes, IntegerKernel,
                         testing::Values(Extremes{255, 127}, Extremes{255, -128}, Extremes{1, -1}));

// Windows in three dimensions, with padding, strides and dilation, over two images of 19 channels.
struct Images {
  Patches p{.depth = {3, 2, 1, 1, 1, 4},
            .rows = {5, 3, 2, 1, 1, 3},
            .columns = {6, 3, 1, 2, 2, 6},
            .channels = 19,
            .first = 0,
            .taken = 19,
            .flip = 0,
            .zero_point = 0};
  std::vector<uint8_t> x = std::vector<uint8_t>(2 * 3 * 5 * 6 * 19);

  Images() {
    std::mt19937 random(0);
    for (uint8_t& byte : x) byte = static_cast<uint8_t>(random());
  }

  int64_t windows() const { return 2 * p.windows(); }

  // Calls the function with each number of a channel that a window has, and its tap; zero in the padding.
  template <typename Function>
  void for_each(int64_t window, int64_t channel, const Function& function) const {
    const int64_t image = window / p.windows();
    const int64_t at[] = {window / (p.rows.count * p.columns.count) % p.depth.count,
                          window / p.columns.count % p.rows.count, window % p.columns.count};
    for (int64_t tap = 0; tap < p.taps(); ++tap) {
      const int64_t k[] = {tap / (p.rows.kernel * p.columns.kernel), tap / p.columns.kernel % p.rows.kernel,
                           tap % p.columns.kernel};
      const Windows* const along[] = {&p.depth, &p.rows, &p.columns};
      int64_t element = image;
      bool inside = true;
      for (int i = 0; i < 3; ++i) {
        const int64_t place = at[i] * along[i]->stride - along[i]->padding + k[i] * along[i]->dilation;
        inside = inside && place >= 0 && place < along[i]->size;
        element = element * along[i]->size + place;
      }
      const int number = inside ? (x[element * p.channels + channel] ^ p.flip) - p.zero_point : 0;
      function(tap, number);
    }
  }
};

TEST(IntegerKernel, WindowsAreRows) {
  for (const IntegerKernels& kernels : each_kernels()) {
    for (const int64_t dilation : {1, 2}) {
      for (const bool is_group : {false, true}) {
        Images of;
        of.p.columns.dilation = dilation;
        of.p.columns.count = of.p.columns.size + 4 - 2 * dilation;
        of.p.flip = 128;
        of.p.zero_point = 131;
        if (is_group) of.p.first = 4, of.p.taken = 5;
        std::vector<int16_t> rows(of.windows() * 2 * of.p.pairs(), -1);
        kernels.widen_patches(of.x.data(), of.p, 0, of.windows(), rows.data());
        for (int64_t window = 0; window < of.windows(); ++window) {
          const int16_t* const row = rows.data() + window * 2 * of.p.pairs();
          for (int64_t c = 0; c < of.p.taken; ++c) {
            of.for_each(window, of.p.first + c,
                        [&](int64_t tap, int number) { ASSERT_EQ(row[tap * of.p.taken + c], number); });
          }
          if (of.p.length() % 2 != 0) {
            ASSERT_EQ(row[of.p.length()], 0);
          }
        }
      }
    }
  }
}

TEST(IntegerKernel, EachChannelHasItsOwnColumn) {
  Images of;
  of.p.taken = 1;
  of.p.zero_point = 77;
  const auto weight = [&](int64_t tap, int64_t channel) { return static_cast<int8_t>(tap * 41 + channel * 13 - 128); };
  const std::vector<int8_t> panels = in_panels(of.p.taps(), of.p.channels, weight);
  const std::vector<uint8_t> outside(of.p.channels, 77);
  const int64_t apart = panels_for(of.p.channels) * kPanelColumns;
  for (const IntegerKernels& kernels : each_kernels()) {
    std::vector<const uint8_t*> taps(of.p.taps() + 1);
    std::vector<int32_t> sums(of.windows() * apart);
    kernels.sum_channels(of.x.data(), of.p, 0, of.windows(), panels.data(), outside.data(), taps.data(), sums.data());
    for (int64_t window = 0; window < of.windows(); ++window) {
      for (int64_t c = 0; c < of.p.channels; ++c) {
        int32_t sum = 0;
        of.for_each(window, c, [&](int64_t tap, int number) { sum += number * weight(tap, c); });
        ASSERT_EQ(sums[window * apart + c], sum);
      }
    }
  }
}

TEST(IntegerKernel, NumbersAreRoundedHalfToEvenAndKeptWithinBounds) {
  const std::vector<float> scales(19, 0.5F), bias(19, 0);
  const Finish to{scales.data(), bias.data(), -100, 90, 110};
  std::vector<int32_t> sums(19);
  for (int i = 0; i < 19; ++i) sums[i] = i - 9;
  sums[17] = std::numeric_limits<int32_t>::max();
  sums[18] = std::numeric_limits<int32_t>::min();
  for (const IntegerKernels& kernels : each_kernels()) {
    std::vector<uint8_t> bytes(19);
    std::vector<float> floats(19);
    kernels.finish_bytes(sums.data(), 19, 1, 19, to, bytes.data(), 19);
    kernels.finish_floats(sums.data(), 19, 1, 19, to, floats.data(), 19);
    for (int i = 0; i < 19; ++i) {
      const float value = static_cast<float>(sums[i]) / 2;
      EXPECT_EQ(floats[i], value);
      EXPECT_EQ(bytes[i], std::nearbyint(std::clamp(value, -100.F, 90.F)) + 110);
    }
  }
}

}  // namespace
}  // namespace onnxtorch
