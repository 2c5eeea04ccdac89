// Quantization as QONNX writes it: floating numbers in, and the nearest ones that the integers stand for out.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_qonnx_ops(Registry& r) {
  for (const char* domain : {"qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"}) {
    r.op(domain, "BipolarQuant").since(1, script("bipolar_quant"));
    r.op(domain, "FloatQuant").since(1, script("float_quant"));
    r.op(domain, "MultiThreshold").since(1, script("multi_threshold"));
    r.op(domain, "Quant").since(1, script("quant"));
    r.op(domain, "Trunc").since(1, script("trunc_quant"));
  }
}

}  // namespace onnxtorch
