// The experimental operators of onnx 1.2 to 1.4 (cmake/experimental_schemas.py). Those that live on under the same name
// or under another one are with their successors: DynamicSlice, MeanVarianceNormalization, ThresholdedRelu.
#include "ops/cast.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Gives the shape that a filler fills: that of its input, or the one which the input holds, and extra dimensions; or
// its attribute shape.
Value filled_shape(Translator& t, const NodeView& n) {
  if (!n.has(0)) {
    if (n.has_attribute("extra_shape")) n.fail("extra_shape goes with an input");
    return t.scalar(n.attr_ints("shape"));
  }
  if (n.has_attribute("shape")) n.fail("takes its shape from an input or from the attribute shape, not from both");
  const bool as_shape = n.attr_int("input_as_shape") != 0;
  const Value shape = as_shape ? t.ints(cast(t, n.input(0), ElementType::Int64)) : t.call("aten::size", {n.tensor(0)});
  return n.has_attribute("extra_shape") ? t.call("aten::add", {shape, n.attr_ints("extra_shape")}) : shape;
}

Values constant_fill(Translator& t, const NodeView& n) {
  const ElementType type = n.attr_element("dtype");
  return {t.call("aten::full", {filled_shape(t, n), n.attr_float("value"), kw("dtype", type), kw("device", t.device())})
              .as(type)};
}

Values given_tensor_fill(Translator& t, const NodeView& n) {
  const ElementType type = n.has(0) ? n.element(0) : ElementType::Float;
  return {t.call("given_tensor", {n.attr_floats("values"), filled_shape(t, n), type, t.device()}).as(type)};
}

}  // namespace

void register_experimental_ops(Registry& r) {
  r.op("Affine").since(1, script("affine"));
  r.op("ConstantFill").since(1, constant_fill);
  r.op("Crop").since(1, script("crop"));
  r.op("GRUUnit").since(1, script("gru_unit"));
  r.op("GivenTensorFill").since(1, given_tensor_fill);
  r.op("ImageScaler").since(1, script("image_scaler"));
  r.op("ParametricSoftplus").since(1, script("parametric_softplus"));
  r.op("Scale").since(1, script("scale"));
  r.op("ScaledTanh").since(1, script("scaled_tanh"));
  for (const char* domain : {"", "aten", "org.pytorch.aten"}) r.op(domain, "ATen").since(1, aten);
}

}  // namespace onnxtorch
