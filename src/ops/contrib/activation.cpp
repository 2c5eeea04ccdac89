// Gelu in its forms, scaled SiLU, and the operators that add a bias before or after them.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

Values gelu(Translator& t, const NodeView& n) { return {t.call("aten::gelu", {n.tensor(0)})}; }

}  // namespace

void register_contrib_activation_ops(Registry& r) {
  r.op(kMicrosoft, "BiasAdd").since(1, script("bias_add"));
  r.op(kMicrosoft, "BiasGelu").since(1, script("bias_gelu"));
  r.op(kMicrosoft, "BiasSoftmax").since(1, script("bias_softmax"));
  r.op(kMicrosoft, "BiasSplitGelu").since(1, script("bias_split_gelu"));
  r.op(kMicrosoft, "FastGelu").since(1, script("fast_gelu"));
  r.op(kMicrosoft, "GatedAdd").since(1, script("gated_add"));
  r.op(kMicrosoft, "Gelu").since(1, gelu);
  r.op(kMicrosoft, "GemmFastGelu").since(1, script("gemm_fast_gelu"));
  r.op(kMicrosoft, "QuickGelu").since(1, script("quick_gelu"));
  r.op(kMicrosoft, "ScaledSiLU").since(1, script("scaled_silu"));
}

}  // namespace onnxtorch
