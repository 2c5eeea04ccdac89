// The features of this CPU, and of oneDNN on it: they are found once, here, for all code that has several ways to
// compute. ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA keep them below what the CPU has.
#pragma once

#include <cstdint>

namespace onnxtorch {

struct CpuFeatures {
  enum class Vectors : uint8_t { Default, Avx2, Avx512 };
  Vectors vectors;         // of the kernels that are compiled once for each of ATen's CPU capabilities
  bool int8_products;      // instructions that add four products of int8 to an int32 (VNNI)
  bool bfloat16_products;  // instructions that add two products of bfloat16 to a float32
};

const CpuFeatures& cpu_features();

// Gives the kernels of a file in kernels/simd, as it is compiled for this CPU.
template <typename Kernels>
const Kernels& for_this_cpu() {
  static const Kernels& chosen = []() -> const Kernels& {
#ifdef __x86_64__
    switch (cpu_features().vectors) {
      case CpuFeatures::Vectors::Avx512:
        if constexpr (requires { Kernels::AVX512_VNNI; }) {
          if (cpu_features().int8_products) return Kernels::AVX512_VNNI;
        }
        return Kernels::AVX512;
      case CpuFeatures::Vectors::Avx2:
        return Kernels::AVX2;
      case CpuFeatures::Vectors::Default:
        break;
    }
#endif
    return Kernels::DEFAULT;
  }();
  return chosen;
}

}  // namespace onnxtorch
