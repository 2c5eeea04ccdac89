#include "kernels/cpu/cpu_features.h"

#include <ATen/Version.h>

#include <string>

#ifdef ONNX_TORCH_ONEDNN
#include "kernels/cpu/onednn/isa.h"
#endif

namespace onnxtorch {
namespace {

CpuFeatures::Vectors vectors() {
  const std::string capability = at::get_cpu_capability();
  return capability == "AVX512" ? CpuFeatures::Vectors::Avx512
         : capability == "AVX2" ? CpuFeatures::Vectors::Avx2
                                : CpuFeatures::Vectors::Default;
}

#ifdef ONNX_TORCH_ONEDNN
CpuFeatures found() { return {vectors(), onednn::has_int8_products(), onednn::has_bfloat16_products()}; }
#else
CpuFeatures found() { return {vectors(), false, false}; }
#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = found();
  return features;
}

}  // namespace onnxtorch
