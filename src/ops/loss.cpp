// NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss.
#include "ops/cast.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using enum ElementType;

// Widens v, as ATen's loss has no half precision on every device.
Value wide(Translator& t, const Value& v) {
  return v.absent() ? v : cast(t, v, v.type.element == Double ? Double : Float);
}

Value loss(Translator& t, const NodeView& n, const Value& log_prob) {
  const Arg ignored = n.has_attribute("ignore_index") ? Arg(n.attr_int("ignore_index")) : Arg(none);
  const Value y = t.call("negative_log_likelihood", {log_prob, cast(t, n.tensor(1), Int64), wide(t, n.tensor(2)),
                                                     n.attr_string("reduction"), ignored});
  return cast(t, y.as(log_prob.type), n.element(0));
}

Values negative_log_likelihood_loss(Translator& t, const NodeView& n) { return {loss(t, n, wide(t, n.tensor(0)))}; }

Values softmax_cross_entropy_loss(Translator& t, const NodeView& n) {
  const Value scores = wide(t, n.tensor(0));
  const Value log_prob = t.call("aten::log_softmax", {scores, 1}).as(scores.type);
  return {loss(t, n, log_prob), cast(t, log_prob, n.element(0))};
}

}  // namespace

void register_loss_ops(Registry& r) {
  r.op("NegativeLogLikelihoodLoss").since(12, negative_log_likelihood_loss).reviewed_to(22);
  r.op("SoftmaxCrossEntropyLoss").since(12, softmax_cross_entropy_loss).reviewed_to(13);
}

}  // namespace onnxtorch
