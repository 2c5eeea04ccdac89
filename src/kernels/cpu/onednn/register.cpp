#include <oneapi/dnnl/dnnl.h>
#include <torch/library.h>

#include "base/registered.h"
#include "kernels/cpu/onednn/operators.h"
#include "kernels/cpu/onednn/product.h"

namespace onnxtorch {

std::string onednn_version() {
  const dnnl_version_t* const version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

void register_onednn() {
  register_packed();
  register_quantize();
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("matmul(Tensor a, Tensor b) -> Tensor", onednn::product); });
  register_planner("onnx_torch::matmul", onednn::plan_product);
}

}  // namespace onnxtorch
