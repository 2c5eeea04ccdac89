#include "kernels/simd/bits_product.h"

#include <algorithm>
#include <cstring>

#include "kernels/simd/tiles.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

// The most rows that are multiplied by the weight as it is read, and the number of panels by which they are at once;
// for one row these are more.
#if defined(CPU_CAPABILITY_AVX512)
constexpr int64_t kFew = 4, kPanelsOfFew = 2, kPanelsOfOne = 4;
#elif defined(CPU_CAPABILITY_AVX2)
constexpr int64_t kFew = 4, kPanelsOfFew = 1, kPanelsOfOne = 2;
#else
constexpr int64_t kFew = 2, kPanelsOfFew = 1, kPanelsOfOne = 1;
#endif

using Words = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t)), aligned(alignof(int32_t)), may_alias));

ONNX_TORCH_INLINE Words load_words(const int32_t* words) { return *reinterpret_cast<const Words*>(words); }

// Numbers that stand for themselves. `at` gives the one of each word in its bits from `shift` on.
template <int bits>
struct Numbers {
  static constexpr int kBits = bits;

  ONNX_TORCH_INLINE explicit Numbers(const float* /*values*/) {}
  ONNX_TORCH_INLINE Floats at(Words words, int shift) const {
#if defined(CPU_CAPABILITY_AVX512)
    if constexpr (bits == 4) {  // the lowest bits pick an element
      const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
      return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(words >> shift), numbers);
    }
#endif
    return __builtin_convertvector(words << (32 - bits - shift) >> (32 - bits), Floats);
  }
};

// Codes, each of which stands for one of 16 values. `at` gives those values likewise.
struct Codes {
  static constexpr int kBits = 4;

#if defined(CPU_CAPABILITY_AVX512)
  ONNX_TORCH_INLINE explicit Codes(const float* of) : values(load(of)) {}
  ONNX_TORCH_INLINE Floats at(Words words, int shift) const {
    return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(words >> shift), values);
  }

  Floats values;
#elif defined(CPU_CAPABILITY_AVX2)
  ONNX_TORCH_INLINE explicit Codes(const float* of) : lower(load(of)), upper(load(of + kLanes)) {}
  ONNX_TORCH_INLINE Floats at(Words words, int shift) const {
    const auto place = reinterpret_cast<__m256i>(words >> shift);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(lower, place), _mm256_permutevar8x32_ps(upper, place),
                            reinterpret_cast<__m256>(words << (32 - kBits - shift)));
  }

  Floats lower, upper;
#else
  ONNX_TORCH_INLINE explicit Codes(const float* of) : values(of) {}
  ONNX_TORCH_INLINE Floats at(Words words, int shift) const {
    Floats result;
    for (int64_t i = 0; i < kLanes; ++i) result[i] = values[(words[i] >> shift) & 15];
    return result;
  }

  const float* values;
#endif
};

// Calls visit(k, count) for each word of a block's column: it begins with the k-th number, and `count` are taken of it.
template <int bits, typename Visit>
ONNX_TORCH_INLINE void for_words(int64_t begin, int64_t end, const Visit& visit) {
  constexpr int64_t kPer = 32 / bits;
  int64_t k = begin;
  for (; k + kPer <= end; k += kPer) visit(k, kPer);
  if (k < end) visit(k, end - k);
}

template <typename Number, bool has_zero_points, int64_t rows, int64_t panels>
ONNX_TORCH_INLINE void multiply_few(const float* x, const SignedBitsGroup& g, int64_t panel, const float* bias,
                                    float* y, int64_t y_apart, int64_t columns) {
  constexpr int64_t kPer = 32 / Number::kBits, kCount = panels * kVectors;
  const Number number(g.values);
  Floats totals[rows][kCount] = {};
  const auto place = [&](int64_t size, int64_t row, int64_t v) __attribute__((always_inline)) {
    return ((panel + v / kVectors) * size + row) * kColumnsOfPanel + v % kVectors * kLanes;
  };
  for (int64_t block = 0; block < g.blocks; ++block) {
    const int64_t begin = block * g.block_size;
    Floats sums[rows][kCount] = {};
    float sums_of_x[rows] = {};
    for_words<Number::kBits>(begin, std::min(begin + g.block_size, g.in),
                             [&](int64_t k, int64_t count) __attribute__((always_inline)) {
                               Words words[kCount];
                               for (int64_t v = 0; v < kCount; ++v)
                                 words[v] = load_words(g.numbers + place(g.words, k / kPer, v));
#pragma GCC unroll 16
                               for (int64_t i = 0; i < kPer; ++i) {
                                 if (i >= count) break;
                                 Floats numbers[kCount];
                                 for (int64_t v = 0; v < kCount; ++v)
                                   numbers[v] = number.at(words[v], static_cast<int>(i) * Number::kBits);
                                 for (int64_t r = 0; r < rows; ++r) {
                                   const float factor = x[r * g.in + k + i];
                                   for (int64_t v = 0; v < kCount; ++v) sums[r][v] += factor * numbers[v];
                                   if constexpr (has_zero_points) sums_of_x[r] += factor;
                                 }
                               }
                             });
    for (int64_t v = 0; v < kCount; ++v) {
      const int64_t at = place(g.blocks, block, v);
      const Floats scale = load(g.scales + at);
      for (int64_t r = 0; r < rows; ++r) {
        Floats sum = sums[r][v];
        if constexpr (has_zero_points) sum -= sums_of_x[r] * load(g.zero_points + at);
        totals[r][v] += scale * sum;
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    float results[panels * kColumnsOfPanel];
    std::memcpy(results, totals[r], sizeof(results));
    for (int64_t i = 0; i < columns; ++i) y[r * y_apart + i] = bias ? bias[i] + results[i] : results[i];
  }
}

// Writes the rows of a panel from begin to end, as floats.
template <typename Number>
ONNX_TORCH_INLINE void dequantize(const SignedBitsGroup& g, int64_t panel, int64_t begin, int64_t end, float* to) {
  constexpr int64_t kPer = 32 / Number::kBits;
  const Number number(g.values);
  for (int64_t k = begin; k < end;) {
    const int64_t block = k / g.block_size, stop = std::min((block + 1) * g.block_size, end);
    Floats scales[kVectors], zero_points[kVectors] = {};
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t at = (panel * g.blocks + block) * kColumnsOfPanel + v * kLanes;
      scales[v] = load(g.scales + at);
      if (g.zero_points) zero_points[v] = load(g.zero_points + at);
    }
    for_words<Number::kBits>(k, stop, [&](int64_t from, int64_t count) __attribute__((always_inline)) {
      for (int64_t v = 0; v < kVectors; ++v) {
        const Words words = load_words(g.numbers + (panel * g.words + from / kPer) * kColumnsOfPanel + v * kLanes);
        float* const rows = to + (from - begin) * kColumnsOfPanel + v * kLanes;
#pragma GCC unroll 16
        for (int64_t i = 0; i < kPer; ++i) {
          if (i >= count) break;
          const Floats result = (number.at(words, static_cast<int>(i) * Number::kBits) - zero_points[v]) * scales[v];
          std::memcpy(rows + i * kColumnsOfPanel, &result, sizeof(result));
        }
      }
    });
    k = stop;
  }
}

struct Operands {
  const float* x;
  int64_t rows;
  const float* bias;
  float* y;
  int64_t y_apart, columns;
};

template <typename Number, bool has_zero_points, int64_t rows>
ONNX_TORCH_INLINE void multiply_panels(const Operands& o, const SignedBitsGroup& g) {
  constexpr int64_t kSide = rows == 1 ? kPanelsOfOne : kPanelsOfFew;
  for (int64_t column = 0; column < o.columns; column += kSide * kColumnsOfPanel) {
    multiply_few<Number, has_zero_points, rows, kSide>(o.x, g, column / kColumnsOfPanel,
                                                       o.bias ? o.bias + column : nullptr, o.y + column, o.y_apart,
                                                       std::min(kSide * kColumnsOfPanel, o.columns - column));
  }
}

// Multiplies rows, of which there are at most kCount.
template <typename Number, int64_t kCount = kFew>
ONNX_TORCH_INLINE void multiply_as_read(const Operands& o, const SignedBitsGroup& g) {
  if (o.rows == kCount) {
    return g.zero_points ? multiply_panels<Number, true, kCount>(o, g) : multiply_panels<Number, false, kCount>(o, g);
  }
  if constexpr (kCount > 1) multiply_as_read<Number, kCount - 1>(o, g);
}

template <typename Number>
void multiply(Operands o, SignedBitsGroup g, float* room) {
  if (o.rows <= kFew) return multiply_as_read<Number>(o, g);
  for (int64_t first = 0; first < g.in; first += kDepth) {
    const int64_t depth = std::min(kDepth, g.in - first), size = depth * kColumnsOfPanel;
    for (int64_t p = 0; p < kPanelsOfGroup; ++p) dequantize<Number>(g, p, first, first + depth, room + p * size);
    multiply_widened(o.rows, {o.x + first, g.in, depth, size, o.bias, o.y, o.y_apart, o.columns, first > 0}, room);
  }
}

void multiply(const float* x, int64_t rows, SignedBitsGroup group, const float* bias, float* y, int64_t y_apart,
              int64_t columns, float* room) {
  const Operands operands{x, rows, bias, y, y_apart, columns};
  if (group.values) return multiply<Codes>(operands, group, room);
  switch (group.bits) {
    case 2:
      return multiply<Numbers<2>>(operands, group, room);
    case 4:
      return multiply<Numbers<4>>(operands, group, room);
    default:
      return multiply<Numbers<8>>(operands, group, room);
  }
}

constexpr BitsProductKernels kKernels{.rows_at_once = kFew, .room = kDepth * kColumnsOfGroup, .multiply = multiply};

}  // namespace

const BitsProductKernels BitsProductKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
