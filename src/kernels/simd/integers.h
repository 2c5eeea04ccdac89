// Vectors of integers, and sums of products of bytes.
#pragma once

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "kernels/simd/inline.h"

namespace onnxtorch::CPU_CAPABILITY {

// `products` are those of unsigned and signed bytes, two of which are added in 16 bits with saturation (SSE2 has no
// such instruction: there four are added in 32 bits), `plus_products` adds them where that fits, and `plus_sums` adds
// them to sums of 32 bits. `load_bytes` widens each byte to 32 bits.
#if defined(CPU_CAPABILITY_AVX512)

using Integers = __m512i;

ONNX_TORCH_INLINE Integers zeros() { return _mm512_setzero_si512(); }
ONNX_TORCH_INLINE Integers load(const void* from) { return _mm512_loadu_si512(from); }
ONNX_TORCH_INLINE Integers load_bytes(const uint8_t* from) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
ONNX_TORCH_INLINE void store(int32_t* to, Integers sums) { _mm512_storeu_si512(to, sums); }
ONNX_TORCH_INLINE Integers fill(int32_t x) { return _mm512_set1_epi32(x); }
ONNX_TORCH_INLINE Integers fill16(int16_t x) { return _mm512_set1_epi16(x); }
ONNX_TORCH_INLINE Integers plus(Integers x, Integers y) { return _mm512_add_epi32(x, y); }
ONNX_TORCH_INLINE Integers plus_pairs(Integers sums, Integers x, Integers y) {
  return _mm512_add_epi32(sums, _mm512_madd_epi16(x, y));
}
ONNX_TORCH_INLINE Integers products(Integers x, Integers y) { return _mm512_maddubs_epi16(x, y); }
ONNX_TORCH_INLINE Integers plus_products(Integers x, Integers y) { return _mm512_add_epi16(x, y); }

#elif defined(CPU_CAPABILITY_AVX2)

using Integers = __m256i;

ONNX_TORCH_INLINE Integers zeros() { return _mm256_setzero_si256(); }
ONNX_TORCH_INLINE Integers load(const void* from) { return _mm256_loadu_si256(static_cast<const Integers*>(from)); }
ONNX_TORCH_INLINE Integers load_bytes(const uint8_t* from) { return _mm256_cvtepu8_epi32(_mm_loadu_si64(from)); }
ONNX_TORCH_INLINE void store(int32_t* to, Integers sums) { _mm256_storeu_si256(reinterpret_cast<Integers*>(to), sums); }
ONNX_TORCH_INLINE Integers fill(int32_t x) { return _mm256_set1_epi32(x); }
ONNX_TORCH_INLINE Integers fill16(int16_t x) { return _mm256_set1_epi16(x); }
ONNX_TORCH_INLINE Integers plus(Integers x, Integers y) { return _mm256_add_epi32(x, y); }
ONNX_TORCH_INLINE Integers plus_pairs(Integers sums, Integers x, Integers y) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(x, y));
}
ONNX_TORCH_INLINE Integers products(Integers x, Integers y) { return _mm256_maddubs_epi16(x, y); }
ONNX_TORCH_INLINE Integers plus_products(Integers x, Integers y) { return _mm256_add_epi16(x, y); }

#elif defined(__x86_64__)

using Integers = __m128i;

ONNX_TORCH_INLINE Integers zeros() { return _mm_setzero_si128(); }
ONNX_TORCH_INLINE Integers load(const void* from) { return _mm_loadu_si128(static_cast<const Integers*>(from)); }
ONNX_TORCH_INLINE Integers load_bytes(const uint8_t* from) {
  const Integers pairs = _mm_unpacklo_epi8(_mm_loadu_si32(from), zeros());
  return _mm_unpacklo_epi16(pairs, zeros());
}
ONNX_TORCH_INLINE void store(int32_t* to, Integers sums) { _mm_storeu_si128(reinterpret_cast<Integers*>(to), sums); }
ONNX_TORCH_INLINE Integers fill(int32_t x) { return _mm_set1_epi32(x); }
ONNX_TORCH_INLINE Integers fill16(int16_t x) { return _mm_set1_epi16(x); }
ONNX_TORCH_INLINE Integers plus(Integers x, Integers y) { return _mm_add_epi32(x, y); }
ONNX_TORCH_INLINE Integers plus_pairs(Integers sums, Integers x, Integers y) {
  return _mm_add_epi32(sums, _mm_madd_epi16(x, y));
}
ONNX_TORCH_INLINE Integers products(Integers x, Integers y) {
  const Integers even = _mm_madd_epi16(_mm_and_si128(x, fill16(255)), _mm_srai_epi16(_mm_slli_epi16(y, 8), 8));
  return plus_pairs(even, _mm_srli_epi16(x, 8), _mm_srai_epi16(y, 8));
}
ONNX_TORCH_INLINE Integers plus_products(Integers x, Integers y) { return _mm_add_epi32(x, y); }

#else

// Vectors as GCC and Clang have them for every CPU. Sums wrap, as those of the instructions do.
using Integers = uint32_t __attribute__((vector_size(16)));
using SignedIntegers = int32_t __attribute__((vector_size(16)));

ONNX_TORCH_INLINE Integers zeros() { return Integers{}; }
ONNX_TORCH_INLINE Integers load(const void* from) {
  Integers result;
  std::memcpy(&result, from, sizeof(result));
  return result;
}
ONNX_TORCH_INLINE Integers load_bytes(const uint8_t* from) { return Integers{from[0], from[1], from[2], from[3]}; }
ONNX_TORCH_INLINE void store(int32_t* to, Integers sums) { std::memcpy(to, &sums, sizeof(sums)); }
ONNX_TORCH_INLINE Integers fill(int32_t x) { return zeros() + static_cast<uint32_t>(x); }
ONNX_TORCH_INLINE Integers fill16(int16_t x) { return fill(static_cast<uint16_t>(x) * 0x10001); }
ONNX_TORCH_INLINE Integers plus(Integers x, Integers y) { return x + y; }
// Gives a part of each element, which begins at a bit, as a signed number.
ONNX_TORCH_INLINE Integers part(Integers x, int bit, int bits) {
  return reinterpret_cast<Integers>(reinterpret_cast<SignedIntegers>(x << (32 - bit - bits)) >> (32 - bits));
}
ONNX_TORCH_INLINE Integers plus_pairs(Integers sums, Integers x, Integers y) {
  for (int bit = 0; bit < 32; bit += 16) sums += part(x, bit, 16) * part(y, bit, 16);
  return sums;
}
ONNX_TORCH_INLINE Integers products(Integers x, Integers y) {
  Integers sums = zeros();
  for (int bit = 0; bit < 32; bit += 8) sums += (x >> bit & 255) * part(y, bit, 8);
  return sums;
}
ONNX_TORCH_INLINE Integers plus_products(Integers x, Integers y) { return x + y; }

#endif

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
constexpr bool kProductsAreOf16Bits = true;
ONNX_TORCH_INLINE Integers plus_sums(Integers sums, Integers products) { return plus_pairs(sums, products, fill16(1)); }
#else
constexpr bool kProductsAreOf16Bits = false;
ONNX_TORCH_INLINE Integers plus_sums(Integers sums, Integers products) { return plus(sums, products); }
#endif

}  // namespace onnxtorch::CPU_CAPABILITY
