// Activations, element by element, and Softmax, LogSoftmax, Hardmax.
#include "ops/arithmetic.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

Values elu(Translator& t, const NodeView& n) { return {t.call("aten::elu", {n.tensor(0), n.attr_float("alpha")})}; }
Values celu(Translator& t, const NodeView& n) { return {t.call("aten::celu", {n.tensor(0), n.attr_float("alpha")})}; }
Values selu(Translator& t, const NodeView& n) {
  return {t.call("aten::elu", {n.tensor(0), n.attr_float("alpha"), n.attr_float("gamma")})};
}

Values leaky_relu(Translator& t, const NodeView& n) {
  return {t.call("aten::leaky_relu", {n.tensor(0), n.attr_float("alpha")})};
}

Values thresholded_relu(Translator& t, const NodeView& n) {
  return {t.call("aten::threshold", {n.tensor(0), n.attr_float("alpha"), 0})};
}

Values gelu(Translator& t, const NodeView& n) {
  return {t.call("aten::gelu", {n.tensor(0), kw("approximate", n.attr_string("approximate"))})};
}

// Translates PRelu. The slope counts where x is negative: never, where x is unsigned.
Values prelu(Translator& t, const NodeView& n) {
  if (is_unsigned(n.element(0))) return {n.tensor(0)};
  return {t.call("prelu", {n.tensor(0), n.tensor(1)})};
}

// Translates PRelu-1, which has one slope for all, or one for each channel.
Values prelu_1(Translator& t, const NodeView& n) {
  return {t.call("prelu", {n.tensor(0), t.call("channel_slopes", {n.tensor(0), n.tensor(1)})})};
}

// Makes the translator of an operator along one axis, ATen's or a script's.
TranslateFunction along_axis(std::string function) {
  return [function = std::move(function)](Translator& t, const NodeView& n) {
    return Values{t.call(function, {n.tensor(0), n.attr_int("axis")})};
  };
}

// Translates Softmax. ONNX expects of float16 (precise to 1e-3) the rounding of each step.
Values softmax(Translator& t, const NodeView& n) {
  const char* const function = n.element(0) == ElementType::Float16 ? "softmax_by_steps" : "aten::softmax";
  return {t.call(function, {n.tensor(0), n.attr_int("axis")})};
}

// Makes the translator for the versions before 13, where `axis` divides the dimensions into rows and columns, and each
// row is normalised as a whole.
TranslateFunction along_rows(std::string function) {
  return [function = std::move(function)](Translator& t, const NodeView& n) {
    const Value x = n.tensor(0), sizes = t.call("aten::size", {x});
    const Value matrix = t.call("aten::reshape", {x, t.call("flat_sizes", {sizes, n.attr_int("axis")})});
    return Values{t.call("aten::reshape", {t.call(function, {matrix, 1}), sizes})};
  };
}

}  // namespace

void register_activation_ops(Registry& r) {
  r.op("Relu").since(1, plain("aten::relu")).reviewed_to(14);
  r.op("LeakyRelu").since(1, leaky_relu).reviewed_to(16);
  r.op("PRelu").since(1, prelu_1).since(7, prelu).reviewed_to(16);
  r.op("Elu").since(1, elu).reviewed_to(22);
  r.op("Celu").since(12, celu).reviewed_to(28);
  r.op("Selu").since(1, selu).reviewed_to(22);  // 6 has other defaults of alpha and gamma
  r.op("ThresholdedRelu").since(1, thresholded_relu).reviewed_to(22);
  r.op("Sigmoid").since(1, plain("aten::sigmoid")).reviewed_to(13);
  r.op("HardSigmoid").since(1, script("hard_sigmoid")).reviewed_to(22);
  r.op("HardSwish").since(14, plain("aten::hardswish")).reviewed_to(22);
  r.op("Swish").since(24, script("swish")).reviewed_to(24);
  r.op("SwiGLU").since(28, script("swiglu")).reviewed_to(28);
  r.op("Mish").since(18, plain("aten::mish")).reviewed_to(22);
  r.op("Gelu").since(20, gelu).reviewed_to(20);
  r.op("Softplus").since(1, plain("aten::softplus")).reviewed_to(22);
  r.op("Softsign").since(1, script("softsign")).reviewed_to(22);
  r.op("Shrink").since(9, script("shrink")).reviewed_to(9);

  const char* const log_softmax = "aten::log_softmax";
  r.op("Softmax").since(1, along_rows("aten::softmax")).since(13, softmax).reviewed_to(13);
  r.op("LogSoftmax").since(1, along_rows(log_softmax)).since(13, along_axis(log_softmax)).reviewed_to(13);
  r.op("Hardmax").since(1, along_rows("hardmax")).since(13, along_axis("hardmax")).reviewed_to(13);
}

}  // namespace onnxtorch
