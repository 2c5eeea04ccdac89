// What this CPU can do, and oneDNN on it: asked once, here, by whatever has several ways to compute.
// ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA keep it below what the CPU has.
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

// Which of the functions to take that are compiled once for each of ATen's CPU capabilities.
template <typename F>
F* for_this_cpu(F* plain, F* avx2, F* avx512) {
  switch (cpu_features().vectors) {
    case CpuFeatures::Vectors::Avx512:
      return avx512;
    case CpuFeatures::Vectors::Avx2:
      return avx2;
    case CpuFeatures::Vectors::Default:
      break;
  }
  return plain;
}

}  // namespace onnxtorch
