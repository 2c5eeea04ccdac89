// The SIMD kernels of each instruction set that a test can run on this CPU.
#pragma once

#include <ATen/Version.h>

#include <string>
#include <vector>

namespace onnxtorch {

// Gives the kernels for each capability that this CPU has, or the environment leaves it.
template <typename Kernels>
std::vector<Kernels> each_kernels() {
  std::vector<Kernels> result{Kernels::DEFAULT};
#ifdef __x86_64__
  const std::string capability = at::get_cpu_capability();
  if (capability != "DEFAULT") result.push_back(Kernels::AVX2);
  if (capability == "AVX512") result.push_back(Kernels::AVX512);
#endif
  return result;
}

}  // namespace onnxtorch
