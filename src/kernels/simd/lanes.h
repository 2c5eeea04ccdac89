// Vectors of floats and doubles as GCC and Clang have them.
#pragma once

#include <cstdint>

#include "kernels/simd/inline.h"

namespace onnxtorch::CPU_CAPABILITY {

// Vectors as long as this CPU's, and half as long; longer ones GCC keeps in memory.
#if defined(CPU_CAPABILITY_AVX512)
constexpr int64_t kLanes = 16;
#elif defined(CPU_CAPABILITY_AVX2)
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif
// The vectors are members of structs: as the argument of a template, a type would lose its alignment.
struct WholeVector {
  using Type = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));
};
struct HalfVector {
  using Type = float __attribute__((vector_size(kLanes / 2 * sizeof(float)), aligned(alignof(float)), may_alias));
};
using Lanes = WholeVector::Type;

constexpr int64_t kDoubles = kLanes / 2;
using Doubles = double __attribute__((vector_size(kDoubles * sizeof(double)), aligned(alignof(double)), may_alias));

ONNX_TORCH_INLINE const Lanes* lanes(const float* x) { return reinterpret_cast<const Lanes*>(x); }

}  // namespace onnxtorch::CPU_CAPABILITY
