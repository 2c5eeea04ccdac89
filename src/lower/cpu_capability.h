// Which of the functions to take that are compiled once for each of ATen's CPU capabilities.
#pragma once

#include <ATen/Version.h>

#include <string>

namespace onnxtorch {

template <typename F>
F* for_this_cpu(F* plain, F* avx2, F* avx512) {
  static const std::string capability = at::get_cpu_capability();
  return capability == "AVX512" ? avx512 : capability == "AVX2" ? avx2 : plain;
}

}  // namespace onnxtorch
