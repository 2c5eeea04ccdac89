// Products of rows of float32 and panels of a weight, of float32 or of float16, which is widened as it is read.
#pragma once

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/simd/group.h"
#include "kernels/simd/lanes.h"

namespace onnxtorch::CPU_CAPABILITY {

// The numbers of rows and panels whose elements of a result are summed up at a time, as many as there are registers
// for: one row by several panels, which are read in parallel, several rows by few panels.
#if defined(CPU_CAPABILITY_AVX512)
constexpr int64_t kRows = 6, kPanelsOfRow = 4, kPanelsOfRows = 4;
#elif defined(CPU_CAPABILITY_AVX2)
constexpr int64_t kRows = 6, kPanelsOfRow = 4, kPanelsOfRows = 1;
#else
constexpr int64_t kRows = 2, kPanelsOfRow = 2, kPanelsOfRows = 1;
#endif
constexpr int64_t kVectors = kColumnsOfPanel / kLanes;  // of a panel
constexpr int64_t kDepth = 1024;  // rows of the weight that are widened at a time, into a thread's cache

using Floats = Lanes;

#if defined(CPU_CAPABILITY_AVX512)

ONNX_TORCH_INLINE Floats load(const uint16_t* x) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}

#elif defined(CPU_CAPABILITY_AVX2)

ONNX_TORCH_INLINE Floats load(const uint16_t* x) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}

#else

// Widens float16. The sign goes to the front, the other bits where a float has them, whose exponent is larger by 112.
ONNX_TORCH_INLINE Floats load(const uint16_t* x) {
  using Halves = int16_t __attribute__((vector_size(kLanes * sizeof(int16_t))));
  using Words = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
  constexpr float kLarger = 0x1p112F;
  constexpr auto kBits = static_cast<int32_t>(0x8FFFE000U);
  Halves halves;
  std::memcpy(&halves, x, sizeof(halves));
  return reinterpret_cast<Floats>((__builtin_convertvector(halves, Words) << 13) & kBits) * kLarger;
}

#endif

ONNX_TORCH_INLINE Floats load(const float* x) { return *reinterpret_cast<const Floats*>(x); }

// The product of rows of x, which lie `x_apart`, and of panels, which lie `apart`; the sums are added to y where
// `adds`, else to the bias.
struct Tile {
  const float* x;
  int64_t x_apart, depth, apart;
  const float* bias;
  float* y;
  int64_t y_apart, columns;
  bool adds;
};

template <int64_t rows, int64_t panels, int64_t width = kColumnsOfPanel, typename Weight>
ONNX_TORCH_INLINE void multiply_tile(const Tile& t, const Weight* weight) {
  constexpr int64_t kOfPanel = width / kLanes, kCount = panels * kOfPanel, kColumns = panels * width;
  Floats sums[rows][kCount] = {};
  for (int64_t k = 0; k < t.depth; ++k) {
    Floats row[kCount];
    for (int64_t v = 0; v < kCount; ++v)
      row[v] = load(weight + v / kOfPanel * t.apart + k * width + v % kOfPanel * kLanes);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t v = 0; v < kCount; ++v) sums[r][v] += t.x[r * t.x_apart + k] * row[v];
    }
  }
  const auto give = [&](int64_t columns) __attribute__((always_inline)) {
    for (int64_t r = 0; r < rows; ++r) {
      float results[kColumns];
      std::memcpy(results, sums[r], sizeof(results));
      float* const y = t.y + r * t.y_apart;
      const float* const before = t.adds ? y : t.bias;
      for (int64_t i = 0; i < columns; ++i) y[i] = before ? before[i] + results[i] : results[i];
    }
  };
  if (t.columns == kColumns) return give(kColumns);
  give(t.columns);
}

// Multiplies rows, of which there are at most kCount.
template <int64_t kCount, int64_t kSide, int64_t width = kColumnsOfPanel, typename Weight>
ONNX_TORCH_INLINE void multiply_rows(int64_t rows, const Tile& t, const Weight* panels) {
  if (rows == kCount) return multiply_tile<kCount, kSide, width>(t, panels);
  if constexpr (kCount > 1) multiply_rows<kCount - 1, kSide, width>(rows, t, panels);
}

// Calls multiply(part, panels) for so many panels at a time.
template <int64_t kSide, typename Weight, typename Multiply>
ONNX_TORCH_INLINE void for_panels(const Tile& t, const Weight* panels, const Multiply& multiply) {
  for (int64_t column = 0; column < t.columns; column += kSide * kColumnsOfPanel) {
    Tile part = t;
    part.bias = t.bias ? t.bias + column : nullptr;
    part.y += column;
    part.columns = std::min(kSide * kColumnsOfPanel, t.columns - column);
    multiply(part, panels + column / kColumnsOfPanel * t.apart);
  }
}

// Multiplies rows by panels, of which `kSide` are read together, also behind the last column.
template <int64_t kSide = kPanelsOfRows>
ONNX_TORCH_INLINE void multiply_widened(int64_t rows, const Tile& t, const float* panels) {
  for_panels<kSide>(t, panels, [&](Tile part, const float* of) __attribute__((always_inline)) {
    int64_t left = rows;
    for (; left >= kRows; left -= kRows, part.x += kRows * t.x_apart, part.y += kRows * t.y_apart)
      multiply_tile<kRows, kSide>(part, of);
    if (left > 0) multiply_rows<kRows - 1, kSide>(left, part, of);
  });
}

// Multiplies rows by panels behind the last of which nothing may be read: as many are read together as there are
// registers for, and the rest one by one.
ONNX_TORCH_INLINE void multiply_panels(int64_t rows, Tile tile, const float* panels) {
  constexpr int64_t kTogether = kPanelsOfRows * kColumnsOfPanel;
  const int64_t columns = tile.columns, together = columns / kTogether * kTogether;
  tile.columns = together;
  multiply_widened(rows, tile, panels);
  tile.y += together;
  if (tile.bias) tile.bias += together;
  tile.columns = columns - together;
  multiply_widened<1>(rows, tile, panels + together / kColumnsOfPanel * tile.apart);
}

}  // namespace onnxtorch::CPU_CAPABILITY
