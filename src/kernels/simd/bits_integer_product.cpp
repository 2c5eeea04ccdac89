// The sums need nearly all registers that AVX2 has, and without this go to memory and back.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("schedule-insns", "sched-pressure")
#endif

#include "kernels/simd/bits_integer_product.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/simd/integers.h"
#include "kernels/simd/tiles.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

// The number of rows that are multiplied at once, and of the vectors of columns by which they are; one row is
// multiplied by more of these. Where that is faster, one row prefetches what it reads of a panel so many words and
// blocks' scales ahead, a line of the cache at a time.
#if defined(CPU_CAPABILITY_AVX512)
constexpr int64_t kAtOnce = 4, kVectorsOfRows = 2, kVectorsOfRow = 4;
constexpr int64_t kWordsAhead(int bits) { return bits < 8 ? 16 : 0; }
constexpr int64_t kScalesAhead = 0;
#elif defined(CPU_CAPABILITY_AVX2)
constexpr int64_t kAtOnce = 3, kVectorsOfRows = 1, kVectorsOfRow = 4;
constexpr int64_t kWordsAhead(int /*bits*/) { return 64; }
constexpr int64_t kScalesAhead = 16;
#else
constexpr int64_t kAtOnce = 2, kVectorsOfRows = 2, kVectorsOfRow = 4;
constexpr int64_t kWordsAhead(int /*bits*/) { return 64; }
constexpr int64_t kScalesAhead = 16;
#endif

constexpr int64_t kPer(int bits) { return 32 / bits; }  // numbers of a word

using Words = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

// Gives words whose bytes are numbers of these words: the i-th number of each byte.
template <int bits>
ONNX_TORCH_INLINE Integers numbers_of(Integers words, int64_t i) {
  if constexpr (bits == 8) return words;
  constexpr int32_t kMask = bits == 4 ? 0x0F0F0F0F : 0x03030303;
  return reinterpret_cast<Integers>((reinterpret_cast<Words>(words) >> static_cast<int>(i * bits)) & kMask);
}

// --- Sums of products ------------------------------------------------------------------------------------------------

// The products of a few words and as many of x, on their way to the sums. With VNNI four products are added to a sum of
// 32 bits at once. Elsewhere two are added in 16 bits, which saturate: a number of 4 bits is 15 at most, so that two
// products are within 15 * 127 * 2 = 3810, and eight of these fit. Numbers of 8 bits are taken as two of 4.
#if defined(__AVX512VNNI__)

template <int bits>
struct Products {
  static constexpr int64_t kWords = std::numeric_limits<int64_t>::max();

  ONNX_TORCH_INLINE void begin(Integers start) { sums = start; }
  ONNX_TORCH_INLINE void add(Integers numbers, Integers x) { sums = _mm512_dpbusd_epi32(sums, numbers, x); }
  ONNX_TORCH_INLINE Integers added_to(Integers /*start*/) const { return sums; }

  Integers sums;
};

#else

template <int bits>
struct Products {
  static constexpr int64_t kWords = bits == 4 ? 4 : 8;  // for 2 bits 32 pairs of products, each a fifth as large
  static constexpr bool kIsHalved = bits == 8 && kProductsAreOf16Bits;

  ONNX_TORCH_INLINE void begin(Integers /*start*/) { lower = upper = zeros(); }
  ONNX_TORCH_INLINE void add(Integers numbers, Integers x) {
    if constexpr (kIsHalved) {
      lower = plus_products(lower, products(numbers_of<4>(numbers, 0), x));
      upper = plus_products(upper, products(numbers_of<4>(numbers, 1), x));
    } else {
      lower = plus_products(lower, products(numbers, x));
    }
  }
  ONNX_TORCH_INLINE Integers added_to(Integers start) const {
    const Integers sums = plus_sums(start, lower);
    if constexpr (kIsHalved) return plus_pairs(sums, upper, fill16(16));
    return sums;
  }

  Integers lower, upper;
};

#endif

ONNX_TORCH_INLINE Floats floats_of(Integers x) { return __builtin_convertvector(reinterpret_cast<Words>(x), Floats); }

ONNX_TORCH_INLINE int64_t bytes_of_block(const UnsignedBitsGroup& g) {
  return static_cast<int64_t>(sizeof(RoundedBlock)) + g.block_size;
}

ONNX_TORCH_INLINE RoundedBlock block_at(const std::byte* x) {
  RoundedBlock block;
  std::memcpy(&block, x, sizeof(block));
  return block;
}

ONNX_TORCH_INLINE Integers four_at(const std::byte* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return fill(four);
}

struct Operands {
  const std::byte* x;
  int64_t x_apart;
  const float* bias;
  float* y;
  int64_t y_apart, columns;
};

// Computes a tile of the result. Sums of a block are exact: below 256 * 255 * 127 < 2^23, so as floats, too. Those of x
// fit 16 bits.
template <int bits, bool has_zero_points, int64_t rows, int64_t vectors>
ONNX_TORCH_INLINE void multiply_tile(const Operands& o, const UnsignedBitsGroup& g, int64_t first) {
  const int64_t words = g.block_size / kPer(bits), apart = bytes_of_block(g);
  const auto place = [&](int64_t size, int64_t row, int64_t v) __attribute__((always_inline)) {
    return ((first + v) / kVectors * size + row) * kColumnsOfPanel + (first + v) % kVectors * kLanes;
  };
  Floats totals[rows][vectors] = {};
  const std::byte* x = o.x;
  for (int64_t block = 0; block < g.blocks; ++block, x += apart) {
    Integers sums[rows][vectors];
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t v = 0; v < vectors; ++v) sums[r][v] = zeros();
    const std::byte* four = x + sizeof(RoundedBlock);
    for (int64_t word = 0; word < words;) {
      Products<bits> some[rows][vectors];
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t v = 0; v < vectors; ++v) some[r][v].begin(sums[r][v]);
      const int64_t end = std::min(words - word, Products<bits>::kWords) + word;
      for (; word < end; ++word) {
        Integers read[vectors];
        for (int64_t v = 0; v < vectors; ++v) {
          const int32_t* const from = g.numbers + place(g.words, block * words + word, v);
          if (rows == 1 && kWordsAhead(bits) > 0 && v % kVectors == 0)
            __builtin_prefetch(from + kWordsAhead(bits) * kColumnsOfPanel);
          read[v] = load(from);
        }
#pragma GCC unroll 4
        for (int64_t i = 0; i < 8 / bits; ++i, four += sizeof(int32_t)) {
          Integers numbers[vectors];
          for (int64_t v = 0; v < vectors; ++v) numbers[v] = numbers_of<bits>(read[v], i);
          for (int64_t r = 0; r < rows; ++r) {
            const Integers of_row = four_at(four + r * o.x_apart);
            for (int64_t v = 0; v < vectors; ++v) some[r][v].add(numbers[v], of_row);
          }
        }
      }
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t v = 0; v < vectors; ++v) sums[r][v] = some[r][v].added_to(sums[r][v]);
    }
    for (int64_t v = 0; v < vectors; ++v) {
      const int64_t at = place(g.blocks, block, v);
      if (rows == 1 && kScalesAhead > 0 && v % kVectors == 0)
        __builtin_prefetch(g.scales + at + kScalesAhead * kColumnsOfPanel);
      const Floats scale = load(g.scales + at);
      const Integers zero_point = has_zero_points ? load_bytes(g.zero_points + at) : fill(1 << (bits - 1));
      for (int64_t r = 0; r < rows; ++r) {
        const RoundedBlock of_row = block_at(x + r * o.x_apart);
        const Integers sum = plus_pairs(sums[r][v], zero_point, fill16(static_cast<int16_t>(-of_row.sum)));
        totals[r][v] += floats_of(sum) * scale * of_row.scale;
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    float results[vectors * kLanes];
    std::memcpy(results, totals[r], sizeof(results));
    float* const y = o.y + r * o.y_apart;
    for (int64_t i = 0; i < o.columns; ++i) y[i] = o.bias ? o.bias[i] + results[i] : results[i];
  }
}

template <int bits, int64_t rows, int64_t vectors>
ONNX_TORCH_INLINE void multiply_columns(const Operands& o, const UnsignedBitsGroup& g, int64_t first) {
  return g.zero_points ? multiply_tile<bits, true, rows, vectors>(o, g, first)
                       : multiply_tile<bits, false, rows, vectors>(o, g, first);
}

// Calls multiply(part, first) for so many vectors of columns at a time.
template <int64_t vectors, typename Multiply>
ONNX_TORCH_INLINE void for_columns(const Operands& o, const Multiply& multiply) {
  for (int64_t column = 0; column < o.columns; column += vectors * kLanes) {
    Operands part = o;
    part.bias = o.bias ? o.bias + column : nullptr;
    part.y += column;
    part.columns = std::min(vectors * kLanes, o.columns - column);
    multiply(part, column / kLanes);
  }
}

// Multiplies fewer rows than kAtOnce.
template <int bits, int64_t kCount = kAtOnce - 1>
ONNX_TORCH_INLINE void multiply_rest(int64_t rows, const Operands& o, const UnsignedBitsGroup& g, int64_t first) {
  if (rows == kCount) return multiply_columns<bits, kCount, kVectorsOfRows>(o, g, first);
  if constexpr (kCount > 1) multiply_rest<bits, kCount - 1>(rows, o, g, first);
}

template <int bits>
void multiply(int64_t rows, Operands o, UnsignedBitsGroup g) {
  if (rows == 1) {
    return for_columns<kVectorsOfRow>(o, [&](const Operands& part, int64_t first) __attribute__((always_inline)) {
      multiply_columns<bits, 1, kVectorsOfRow>(part, g, first);
    });
  }
  for_columns<kVectorsOfRows>(o, [&](Operands part, int64_t first) __attribute__((always_inline)) {
    int64_t left = rows;
    for (; left >= kAtOnce; left -= kAtOnce, part.x += kAtOnce * part.x_apart, part.y += kAtOnce * part.y_apart)
      multiply_columns<bits, kAtOnce, kVectorsOfRows>(part, g, first);
    multiply_rest<bits>(left, part, g, first);
  });
}

// --- Rows ------------------------------------------------------------------------------------------------------------

constexpr int64_t kLargestBlock = 256;

// Gives the largest magnitude. By their bits, numbers without a sign are in the order of their sizes, infinity and NaN
// at the end.
ONNX_TORCH_INLINE float largest(const float* x, int64_t count) {
  int32_t result = 0;
  for (int64_t i = 0; i < count; ++i) result = std::max(result, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(result);
}

// Gives the nearest integer, half to even, of x, whose magnitude is far below 2^22: the lowest bits of such a sum.
ONNX_TORCH_INLINE int8_t rounded(float x) { return static_cast<int8_t>(std::bit_cast<int32_t>(x + 0x1.8p23F)); }

template <int bits>
ONNX_TORCH_INLINE void round_block(const float* x, int64_t count, int64_t block_size, std::byte* to) {
  constexpr float kMost = 127, kLeast = kMost * std::numeric_limits<float>::min();
  const float most = largest(x, count);
  const bool is_finite = most <= std::numeric_limits<float>::max();
  const float inverse = is_finite && most >= kLeast ? kMost / most : 0;  // what is smaller is zero
  int8_t numbers[kLargestBlock] = {};
  if (is_finite)
    for (int64_t i = 0; i < count; ++i) numbers[i] = rounded(x[i] * inverse);
  RoundedBlock block{is_finite ? most / kMost : std::numeric_limits<float>::quiet_NaN(), 0};
  for (int64_t i = 0; i < block_size; ++i) block.sum += numbers[i];
  std::memcpy(to, &block, sizeof(block));
  auto* const bytes = reinterpret_cast<int8_t*>(to + sizeof(block));
  constexpr int64_t kParts = 8 / bits;
  for (int64_t word = 0; word < block_size; word += kPer(bits))
    for (int64_t i = 0; i < kParts; ++i)
      for (int64_t j = 0; j < 4; ++j) bytes[word + i * 4 + j] = numbers[word + j * kParts + i];
}

template <int bits>
ONNX_TORCH_INLINE void round_blocks(const float* x, const UnsignedBitsGroup& g, std::byte* to) {
  for (int64_t k = 0; k < g.in; k += g.block_size, to += bytes_of_block(g))
    round_block<bits>(x + k, std::min(g.block_size, g.in - k), g.block_size, to);
}

// --- For each number of bits -----------------------------------------------------------------------------------------

void round(const float* x, UnsignedBitsGroup weight, std::byte* to) {
  switch (weight.bits) {
    case 2:
      return round_blocks<2>(x, weight, to);
    case 4:
      return round_blocks<4>(x, weight, to);
    default:
      return round_blocks<8>(x, weight, to);
  }
}

int64_t bytes_of_row(UnsignedBitsGroup weight) { return weight.blocks * bytes_of_block(weight); }

void multiply(const std::byte* x, int64_t rows, UnsignedBitsGroup group, const float* bias, float* y, int64_t y_apart,
              int64_t columns) {
  const Operands operands{x, bytes_of_row(group), bias, y, y_apart, columns};
  switch (group.bits) {
    case 2:
      return multiply<2>(rows, operands, group);
    case 4:
      return multiply<4>(rows, operands, group);
    default:
      return multiply<8>(rows, operands, group);
  }
}

constexpr BitsIntegerKernels kKernels{
    .rows_at_once = kAtOnce, .round = round, .bytes_of_row = bytes_of_row, .multiply = multiply};

}  // namespace

const BitsIntegerKernels BitsIntegerKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
