#include "kernels/cpu/onednn/isa.h"

#include <oneapi/dnnl/dnnl.hpp>

namespace onnxtorch::onednn {

bool has_bfloat16_products() {
  using enum dnnl::cpu_isa;
  switch (dnnl::get_effective_cpu_isa()) {
    case avx512_core_bf16:
    case avx512_core_fp16:
    case avx512_core_amx:
    case avx512_core_amx_fp16:
      return true;
    default:
      return false;
  }
}

bool has_int8_products() {
  using enum dnnl::cpu_isa;
  const auto isa = dnnl::get_effective_cpu_isa();
  return isa == avx2_vnni || isa == avx2_vnni_2 || isa == avx512_core_vnni || has_bfloat16_products();
}

bool has_good_gelu() {
  using enum dnnl::cpu_isa;
  const auto isa = dnnl::get_effective_cpu_isa();
  return isa == avx512_core || isa == avx512_core_vnni || has_bfloat16_products();
}

bool keeps_nan_in_sigmoid() { return dnnl::get_effective_cpu_isa() != dnnl::cpu_isa::sse41; }

}  // namespace onnxtorch::onednn
