#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "each_kernels.h"
#include "kernels/simd/quantized/quantize.h"

namespace onnxtorch {
namespace {

template <typename T, typename KernelsOf>
void check_look_up(const KernelsOf& kernels_of) {
  std::mt19937 random(0);
  std::uniform_int_distribution<int> byte(0, 255);
  std::vector<uint8_t> table(256);
  std::iota(table.begin(), table.end(), uint8_t{0});
  std::ranges::shuffle(table, random);
  constexpr uint8_t kUntouched = 99;
  for (const int64_t count : {0, 1, 31, 32, 33, 63, 64, 65, 127, 256, 300, 1000}) {
    std::vector<T> x(count);
    std::ranges::generate(x, [&] { return static_cast<T>(byte(random)); });
    std::iota(x.begin(), x.begin() + std::min<int64_t>(count, 256), std::numeric_limits<T>::min());
    std::vector<uint8_t> expected;
    for (const T number : x) expected.push_back(table[number - std::numeric_limits<T>::min()]);
    expected.push_back(kUntouched);
    for (const QuantizeKernels& kernels : each_kernels<QuantizeKernels>()) {
      std::vector<uint8_t> y(count + 1, kUntouched);
      kernels_of(kernels).look_up(x.data(), table.data(), y.data(), count);
      EXPECT_EQ(y, expected) << count << " numbers";
      std::copy(x.begin(), x.end(), y.begin());  // and in their own place
      kernels_of(kernels).look_up(reinterpret_cast<const T*>(y.data()), table.data(), y.data(), count);
      EXPECT_EQ(y, expected) << count << " numbers";
    }
  }
}

TEST(LookUp, FindsEachByteOnEachCpu) {
  check_look_up<uint8_t>([](const QuantizeKernels& kernels) { return kernels.of_uint8; });
  check_look_up<int8_t>([](const QuantizeKernels& kernels) { return kernels.of_int8; });
}

}  // namespace
}  // namespace onnxtorch
