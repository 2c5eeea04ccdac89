// The vectors of integers that any CPU of its kind has: SSE2's on x86-64, and the compiler's elsewhere.
#include "kernels/simd/integers.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <random>

namespace onnxtorch::CPU_CAPABILITY {
namespace {

constexpr size_t kBytes = sizeof(Integers), kPairs = kBytes / 2, kSums = kBytes / 4;
using Bytes = std::array<uint8_t, kBytes>;
using Sums = std::array<int32_t, kSums>;

Sums sums_of(Integers vector) {
  Sums sums;
  store(sums.data(), vector);
  return sums;
}

template <typename T>
T element(const Bytes& of, size_t i) {
  T result;
  std::memcpy(&result, of.data() + i * sizeof(T), sizeof(T));
  return result;
}

int32_t wrapped(int64_t sum) { return static_cast<int32_t>(static_cast<uint32_t>(sum)); }

constexpr int kTimes = 10'000;

// Gives bytes of which many are the least and the largest.
Bytes bytes(std::mt19937& random) {
  Bytes result;
  for (uint8_t& byte : result) {
    constexpr std::array<uint8_t, 4> kEnds = {0, 127, 128, 255};
    const auto bits = static_cast<uint32_t>(random());
    byte = static_cast<uint8_t>((bits & 1) != 0 ? kEnds[bits >> 1 & 3] : bits >> 8);
  }
  return result;
}

TEST(Integers, Fill) {
  for (const int32_t x : {0, 1, -1, 0x12345678, INT32_MIN}) EXPECT_EQ(sums_of(fill(x))[kSums - 1], x);
  for (const int16_t x : std::initializer_list<int16_t>{0, 1, -1, 0x1234, INT16_MIN}) {
    const Sums sums = sums_of(fill16(x));
    for (size_t i = 0; i < kPairs; ++i) {
      int16_t found;
      std::memcpy(&found, reinterpret_cast<const char*>(sums.data()) + i * sizeof(found), sizeof(found));
      EXPECT_EQ(found, x);
    }
  }
  EXPECT_EQ(sums_of(zeros()), Sums{});
}

TEST(Integers, LoadBytesWidensEachByte) {
  std::mt19937 random(0);
  for (int time = 0; time < kTimes; ++time) {
    const Bytes x = bytes(random);
    const Sums found = sums_of(load_bytes(x.data()));
    for (size_t i = 0; i < kSums; ++i) EXPECT_EQ(found[i], x[i]);
  }
}

TEST(Integers, PlusWraps) {
  std::mt19937 random(0);
  for (int time = 0; time < kTimes; ++time) {
    const Bytes x = bytes(random), y = bytes(random);
    const Sums found = sums_of(plus(load(x.data()), load(y.data())));
    for (size_t i = 0; i < kSums; ++i)
      EXPECT_EQ(found[i], wrapped(int64_t{element<int32_t>(x, i)} + element<int32_t>(y, i)));
  }
}

TEST(Integers, PlusPairsAddsProductsOf16Bits) {
  std::mt19937 random(0);
  for (int time = 0; time < kTimes; ++time) {
    const Bytes start = bytes(random), x = bytes(random), y = bytes(random);
    const Sums found = sums_of(plus_pairs(load(start.data()), load(x.data()), load(y.data())));
    for (size_t i = 0; i < kSums; ++i) {
      int64_t sum = element<int32_t>(start, i);
      for (const size_t pair : {2 * i, 2 * i + 1})
        sum += int64_t{element<int16_t>(x, pair)} * element<int16_t>(y, pair);
      EXPECT_EQ(found[i], wrapped(sum));
    }
  }
}

TEST(Integers, ProductsAddFourOfBytes) {
  std::mt19937 random(0);
  for (int time = 0; time < kTimes; ++time) {
    const Bytes x = bytes(random), y = bytes(random), others = bytes(random);
    const Integers both =
        plus_products(products(load(x.data()), load(y.data())), products(load(others.data()), load(y.data())));
    const Sums found = sums_of(plus_sums(fill(1), both));
    for (size_t i = 0; i < kSums; ++i) {
      int32_t sum = 1;
      for (size_t byte = 4 * i; byte < 4 * i + 4; ++byte)
        sum += (element<uint8_t>(x, byte) + element<uint8_t>(others, byte)) * element<int8_t>(y, byte);
      EXPECT_EQ(found[i], sum);
    }
  }
}

}  // namespace
}  // namespace onnxtorch::CPU_CAPABILITY
