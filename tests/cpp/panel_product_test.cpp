#include "kernels/simd/panel_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "each_kernels.h"
#include "kernels/cpu/quantized/strips.h"

namespace onnxtorch {
namespace {

int64_t panels_for(int64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

// Lays out a matrix of int8 in panels.
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

// Numbers and weights of which neighbouring products, added in 16 bits, saturate or just do not.
struct Numbers {
  const char* name;
  std::function<int(int64_t)> x;
  std::function<int(int64_t, int64_t)> weight;

  friend void PrintTo(const Numbers& n, std::ostream* to) { *to << n.name; }
};
class Strips : public testing::TestWithParam<Numbers> {
 protected:
  at::Tensor matrix(int64_t rows, int64_t columns) const {
    at::Tensor result = at::empty({1, rows, columns}, at::kChar);
    auto* const to = static_cast<int8_t*>(result.data_ptr());
    for (int64_t i = 0; i < rows * columns; ++i)
      to[i] = static_cast<int8_t>(GetParam().weight(i / columns, i % columns));
    return result;
  }
};

TEST_P(Strips, SumsAreExact) {
  const auto& [name, x, weight] = GetParam();
  for (const IntegerKernels& kernels : each_kernels<IntegerKernels>()) {
    const int64_t columns = kernels.strip_columns;
    for (const int64_t terms : {1, 2, 3, 4, 31, 300, 4096}) {
      Patches p{kNoWindows, kNoWindows, kNoWindows, terms, 0, terms, 0, 0};
      const at::Tensor laid = in_strips(matrix(terms, columns), columns);
      const Strip strip = strip_at(laid, 0);
      for (const int64_t rows : {1, 2, 3, 5, 6, 7, 8, 9, 17}) {
        p.rows.size = p.rows.count = rows;
        std::vector<uint8_t> bytes(rows * terms), copied(rows * p.steps() * kStepRows);
        for (int64_t i = 0; i < rows * terms; ++i) bytes[i] = static_cast<uint8_t>(x(i));
        kernels.copy_patches(bytes.data(), p, 0, rows, copied.data());
        std::vector<int32_t> start(kPanelColumns), sums(rows * kPanelColumns);
        std::iota(start.begin(), start.end(), -3);
        kernels.sum_strip(copied.data(), p.steps() * kStepRows, rows, strip, start.data(), sums.data());
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t c = 0; c < columns; ++c) {
            int32_t sum = start[c];
            for (int64_t k = 0; k < terms; ++k) sum += bytes[row * terms + k] * weight(k, c);
            ASSERT_EQ(sums[row * kPanelColumns + c], sum);
          }
        }
      }
    }
  }
}

// Whatever the weights, the positive and the negative ones that are added in the same 16 bits are no more than fits.
TEST_P(Strips, GroupsFitSixteenBitsAndAreTheWeight) {
  for (const int64_t width : {4, 8, 16}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {7, 19}, {300, 33}}) {
      const at::Tensor weight = matrix(rows, columns), laid = in_strips(weight, width);
      ASSERT_TRUE(from_strips(laid, weight.sizes(), width).equal(weight));
      ASSERT_TRUE(are_strips(laid, weight.sizes(), width));
      for (int64_t number = 0; number < (columns + width - 1) / width; ++number) {
        const Strip strip = strip_at(laid, number);
        const int8_t* step = strip.steps;
        for (int64_t size = 1; size <= kMostSteps; ++size) {
          for (int32_t group = 0; group < strip.groups[size - 1]; ++group, step += size * width * kStepRows) {
            for (int64_t lane = 0; lane < 2 * width; ++lane) {
              int positive = 0, negative = 0;
              for (int64_t s = 0; s < size; ++s) {
                for (int64_t i = 0; i < 2; ++i) {
                  const int one = step[s * width * kStepRows + lane * 2 + i];
                  (one > 0 ? positive : negative) += one;
                }
              }
              ASSERT_LE(positive, kMostWeight);
              ASSERT_GE(negative, -kMostWeight);
            }
          }
        }
      }
    }
  }
}

TEST(StripsFromElsewhere, BytesThatTellToReadElsewhereAreNone) {
  constexpr int64_t kWidth = 8;
  const at::Tensor weight = at::ones({1, 12, 10}, at::kChar), laid = in_strips(weight, kWidth);
  EXPECT_FALSE(are_strips(laid.narrow(0, 0, laid.numel() - 64), weight.sizes(), kWidth));
  EXPECT_FALSE(are_strips(laid.narrow(0, 0, 8), weight.sizes(), kWidth));
  EXPECT_FALSE(are_strips(laid, {1, 4, 10}, kWidth));
  const auto with = [&](auto value, int64_t at) {
    const at::Tensor changed = laid.clone();
    std::memcpy(changed.data_ptr<uint8_t>() + at, &value, sizeof(value));
    return are_strips(changed, weight.sizes(), kWidth);
  };
  const Strip strip = strip_at(laid, 1);
  const auto* const begin = laid.const_data_ptr<uint8_t>();
  const int64_t groups = reinterpret_cast<const uint8_t*>(strip.groups) - begin;
  const int64_t rows = reinterpret_cast<const uint8_t*>(strip.rows) - begin;
  EXPECT_TRUE(with(uint16_t{2}, rows));
  EXPECT_FALSE(with(uint16_t{3}, rows));
  EXPECT_FALSE(with(uint16_t{0xFFFF}, rows));
  EXPECT_FALSE(with(int32_t{100}, groups));
  EXPECT_FALSE(with(int64_t{1} << 40, 8));
  EXPECT_FALSE(with(int64_t{-64}, 8));
}

int hashed(int64_t i) { return static_cast<int>(static_cast<uint32_t>(i * 2654435761) >> 16); }

INSTANTIATE_TEST_SUITE_P(
    IntegerKernel, Strips,
    testing::Values(
        Numbers{"highest", [](int64_t) { return 255; }, [](int64_t, int64_t) { return 127; }},
        Numbers{"lowest", [](int64_t) { return 255; }, [](int64_t, int64_t) { return -128; }},
        Numbers{"signs_alternate", [](int64_t) { return 255; }, [](int64_t k, int64_t) { return k % 2 ? -128 : 127; }},
        Numbers{"pairs_just_fit", [](int64_t) { return 255; }, [](int64_t k, int64_t) { return k % 2 ? 1 : 127; }},
        Numbers{"pairs_just_do_not", [](int64_t) { return 255; }, [](int64_t k, int64_t) { return k % 2 ? -2 : -127; }},
        Numbers{
            "some_pairs_fit", [](int64_t i) { return hashed(i) % 256; },
            [](int64_t k, int64_t c) { return (k + c) % 5 ? hashed(k * 31 + c) % 40 - 20 : 127 - hashed(k) % 256; }},
        Numbers{"any", [](int64_t i) { return hashed(i) % 256; },
                [](int64_t k, int64_t c) { return hashed(k * 131 + c) % 256 - 128; }},
        Numbers{"zero", [](int64_t) { return 255; }, [](int64_t, int64_t) { return 0; }}),
    [](const auto& of) { return std::string(of.param.name); });

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
  for (const IntegerKernels& kernels : each_kernels<IntegerKernels>()) {
    for (const int64_t dilation : {1, 2}) {
      for (const bool is_group : {false, true}) {
        Images of;
        of.p.columns.dilation = dilation;
        of.p.columns.count = of.p.columns.size + 4 - 2 * dilation;
        of.p.flip = 128;
        of.p.zero_point = 131;
        if (is_group) of.p.first = 4, of.p.taken = 5;
        const int64_t length = of.p.steps() * kStepRows;
        std::vector<uint8_t> rows(of.windows() * length, 255);
        kernels.copy_patches(of.x.data(), of.p, 0, of.windows(), rows.data());
        for (int64_t window = 0; window < of.windows(); ++window) {
          const uint8_t* const row = rows.data() + window * length;
          for (int64_t c = 0; c < of.p.taken; ++c) {
            of.for_each(window, of.p.first + c, [&](int64_t tap, int number) {
              ASSERT_EQ(row[tap * of.p.taken + c] - of.p.zero_point, number);
            });
          }
          for (int64_t k = of.p.length(); k < length; ++k) ASSERT_EQ(row[k], 0);
        }
      }
    }
  }
}

class Channels : public testing::TestWithParam<int> {};

TEST_P(Channels, EachHasItsOwnColumn) {
  Images of;
  of.p.taken = 1;
  of.p.flip = static_cast<uint8_t>(GetParam());
  of.p.zero_point = 77;
  const auto weight = [&](int64_t tap, int64_t channel) { return static_cast<int8_t>(tap * 41 + channel * 13 - 128); };
  const std::vector<int8_t> panels = in_panels(of.p.taps(), of.p.channels, weight);
  const int64_t apart = panels_for(of.p.channels) * kPanelColumns;
  const std::vector<uint8_t> outside(apart + kPanelColumns, static_cast<uint8_t>(77 ^ GetParam()));
  std::vector<int32_t> start(apart);
  for (int64_t c = 0; c < of.p.channels; ++c)
    for (int64_t tap = 0; tap < of.p.taps(); ++tap) start[c] -= (77 - GetParam()) * weight(tap, c);
  for (const IntegerKernels& kernels : each_kernels<IntegerKernels>()) {
    std::vector<const uint8_t*> taps(kWindowsAtOnce * (of.p.taps() + 1));
    for (const int64_t first : {0, 3}) {
      std::vector<int32_t> sums((of.windows() - first) * apart);
      kernels.sum_channels(of.x.data(), std::ssize(of.x), of.p, first, of.windows(),
                           {panels.data(), start.data(), outside.data()}, taps.data(), sums.data());
      for (int64_t window = first; window < of.windows(); ++window) {
        for (int64_t c = 0; c < of.p.channels; ++c) {
          int32_t sum = 0;
          of.for_each(window, c, [&](int64_t tap, int number) { sum += number * weight(tap, c); });
          ASSERT_EQ(sums[(window - first) * apart + c], sum);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(IntegerKernel, Channels, testing::Values(0, 128),
                         [](const auto& of) { return std::string(of.param ? "signed" : "unsigned"); });

TEST(IntegerKernel, NumbersAreRoundedHalfToEvenAndKeptWithinBounds) {
  const std::vector<float> scales(32, 0.5F), bias(32, 0);
  const Finish to{scales.data(), bias.data(), -100, 90, 110};
  std::vector<int32_t> sums(32);
  for (int i = 0; i < 19; ++i) sums[i] = i - 9;
  sums[17] = std::numeric_limits<int32_t>::max();
  sums[18] = std::numeric_limits<int32_t>::min();
  for (const IntegerKernels& kernels : each_kernels<IntegerKernels>()) {
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
