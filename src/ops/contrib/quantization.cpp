// Operators on integers of 8 and 16 bits: QLinear…, QGemm, dynamic products, QuantizeLinear and DequantizeLinear.
#include "ops/quantization.h"

#include <ATen/ops/ones.h>

#include <algorithm>

#include "ops/arithmetic.h"
#include "ops/cast.h"
#include "ops/contrib/contrib.h"
#include "ops/contrib/fused.h"
#include "ops/recurrent.h"
#include "ops/spatial.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using enum ElementType;

// --- Quantized tensors: the integers are one input, their scale and their zero point the next two ---

// Gives a scale as one number.
Value scale(Translator& t, const NodeView& n, size_t i) { return laid_out(t, "one_for_all", n.tensor(i), Float); }

// Gives a zero point as one number; absent where it is zero.
Value zero(Translator& t, const NodeView& n, size_t i) {
  return laid_out(t, "one_for_all", zero_point(t, n, i), Float);
}

// Gives what the integers at input i stand for.
Value real(Translator& t, const NodeView& n, size_t i) {
  return dequantized(t, n.tensor(i), scale(t, n, i + 1), zero(t, n, i + 2), Float);
}

// Quantizes y by the scale and the zero point at inputs i and i + 1.
Value rounded(Translator& t, const NodeView& n, const Value& y, size_t i, ElementType to) {
  return quantized(t, y.as(Float), scale(t, n, i), zero(t, n, i + 1), to);
}

// Gives a scale of 1, for what is in steps already, as the passes know each quantization by its scale.
Value one(Translator& t) { return t.constant(at::ones({}), Float); }

// Gives how many steps the integers at input i are away from the zero point at input `at`.
Value steps(Translator& t, const NodeView& n, size_t i, size_t at) {
  return dequantized(t, n.tensor(i), one(t), zero(t, n, at), Float);
}

// Quantizes y, which is in steps from the zero point at input i.
Value rounded_steps(Translator& t, const NodeView& n, const Value& y, size_t i, ElementType to) {
  return quantized(t, y.as(Float), one(t), zero(t, n, i), to);
}

// Does the same as the kernels that add the zero point before they round, so that ties go to even results.
Value rounded_after_zero_point(Translator& t, const NodeView& n, const Value& y, size_t i) {
  const Value z = zero(t, n, i);
  return quantized(t, (z.absent() ? y : t.call("aten::add", {y, z})).as(Float), one(t), {}, n.element(0));
}

// --- Element by element ---

Values qlinear_add(Translator& t, const NodeView& n) {
  const Value sum = t.call("quantized_sum", {n.tensor(0), scale(t, n, 1), zero(t, n, 2), n.tensor(3), scale(t, n, 4),
                                             zero(t, n, 5), scale(t, n, 6), zero(t, n, 7)});
  return {quantized(t, sum.as(Float), one(t), {}, n.element(0))};
}

Values qlinear_mul(Translator& t, const NodeView& n) {
  const Value product = t.call("aten::mul", {steps(t, n, 0, 2), steps(t, n, 3, 5)});
  const Value unit = t.call("aten::div", {t.call("aten::mul", {scale(t, n, 1), scale(t, n, 4)}), scale(t, n, 6)});
  return {rounded_after_zero_point(t, n, t.call("aten::mul", {product, unit}), 7)};
}

Values mul_integer(Translator& t, const NodeView& n) {
  return {t.call("int32_of", {t.call("aten::mul", {steps(t, n, 0, 1), steps(t, n, 2, 3)})})};
}

Values qlinear_leaky_relu(Translator& t, const NodeView& n) {
  const Value y = t.call("aten::leaky_relu", {real(t, n, 0), n.attr_float("alpha")});
  return {rounded(t, n, y, 3, n.element(0))};
}

Values qlinear_sigmoid(Translator& t, const NodeView& n) {
  return {rounded(t, n, t.call("aten::sigmoid", {real(t, n, 0)}), 3, n.element(0))};
}

Values qlinear_where(Translator& t, const NodeView& n) {
  return {rounded(t, n, t.call("aten::where", {n.tensor(0), real(t, n, 1), real(t, n, 4)}), 7, n.element(1))};
}

// Translates QLinearSoftmax. The kernel takes a whole number of steps in 1, so that 1 / 255 in float gives 254.
Values qlinear_softmax(Translator& t, const NodeView& n) {
  const char* const function = n.attr_int("opset") < 13 ? "softmax_of_rows" : "aten::softmax";
  const Value y = t.call(function, {real(t, n, 0), n.attr_int("axis")});
  const Value steps_in_1 = t.call("aten::floor", {t.call("aten::reciprocal", {scale(t, n, 3)})});
  return {rounded_steps(t, n, t.call("aten::mul", {y, steps_in_1}), 4, n.element(0))};
}

Values qlinear_concat(Translator& t, const NodeView& n) {
  if (n.input_count() < 5 || n.input_count() % 3 != 2)
    n.fail("the inputs are not numbers, a scale and a zero point for each tensor");
  Values parts;
  for (size_t i = 2; i < n.input_count(); i += 3) {
    if (n.element(i) == Float || n.element(i + 1) != Float || n.element(i + 2) != n.element(i))
      n.fail("the inputs from " + std::to_string(i) + " on are not numbers, a scale and a zero point");
    parts.push_back(real(t, n, i));
  }
  return {rounded(t, n, t.call("aten::cat", {parts, n.attr_int("axis")}), 0, n.element(1))};
}

// --- Windows ---

// Makes the translator of a node with channels_last of the one without, of images whose channels come first.
TranslateFunction in_either_layout(TranslateFunction translate) {
  return [translate = std::move(translate)](Translator& t, const NodeView& n) {
    if (n.attr_int("channels_last") == 0) return translate(t, n);
    Values inputs = n.inputs();
    inputs[0] = t.call("aten::movedim", {n.tensor(0), -1, 1}).as(n.input(0).type);
    const Value y = translate(t, NodeView(t, n.proto(), n.schema(), n.label(), inputs))[0];
    return Values{t.call("aten::movedim", {y, 1, -1}).as(y.type)};
  };
}

Values qlinear_global_average_pool(Translator& t, const NodeView& n) {
  const Value means = t.call("quantized_image_means", {n.tensor(0), scale(t, n, 1), zero(t, n, 2), scale(t, n, 3)});
  return {rounded_steps(t, n, means, 4, n.element(0))};
}

// Tells whether one window takes all of an image; nothing where the run will tell.
std::optional<bool> pools_whole_images(const Translator& t, const NodeView& n) {
  const std::vector<int64_t> kernel = n.attr_ints("kernel_shape");
  const bool padded =
      n.has_attribute("pads") && std::ranges::any_of(n.attr_ints("pads"), [](int64_t p) { return p != 0; });
  if (padded || n.attr_string("auto_pad").starts_with("SAME")) return false;
  const auto sizes = t.known_sizes(n.input(0));
  if (!sizes) return {};
  if (sizes->size() != kernel.size() + 2) return false;
  bool all_known = true;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const auto size = (*sizes)[i + 2];
    if (size && *size != kernel[i]) return false;
    all_known &= size.has_value();
  }
  return all_known ? std::optional(true) : std::nullopt;
}

}  // namespace

// Translates QLinearAveragePool. The kernel pools whole images as QLinearGlobalAveragePool, which adds the zero point
// after rounding. Sums of integers are exact in any order, so that a mean in the middle between two steps is one.
Values qlinear_average_pool(Translator& t, const NodeView& n) {
  const auto whole = pools_whole_images(t, n);
  if (whole == true) return qlinear_global_average_pool(t, n);
  const NodeView images(t, n.proto(), n.schema(), n.label(), {dequantized(t, n.tensor(0), {}, zero(t, n, 2), Float)});
  const Value means = average_pool(t, images, /*overhang_is_padding=*/true)[0];
  const Value steps = t.call("aten::div", {scale(t, n, 1), scale(t, n, 3)});
  const Value of_windows = rounded_after_zero_point(t, n, t.call("aten::mul", {means, steps}).as(Float), 4);
  if (whole == false) return {of_windows};
  const Value of_images = qlinear_global_average_pool(t, n)[0];
  return {
      t.call("of_whole_images", {n.tensor(0), n.attr_ints("kernel_shape"), of_images, of_windows}).as(of_windows.type)};
}

namespace {

// --- Sums and products ---

Values qlinear_reduce_mean(Translator& t, const NodeView& n) {
  const Value y = t.call("aten::mean", {real(t, n, 0), n.attr_ints("axes"), n.attr_int("keepdims") != 0});
  return {rounded(t, n, y, 3, n.element(0))};
}

Values reduce_sum_integer(Translator& t, const NodeView& n) {
  const ElementType to = is_unsigned(n.element(0)) ? Uint32 : Int32;
  const Value sum = t.call("aten::sum", {n.tensor(0), n.attr_ints("axes"), n.attr_int("keepdims") != 0});
  return {wrapped(t, t.call("aten::to", {sum, to}), to).as(to)};
}

// Translates MatMulInteger16, whose sums of products wrap in 32 bits. Sums of 2^21 such products are exact in double
// precision.
Values matmul_integer_16(Translator& t, const NodeView& n) {
  const ElementType to = is_unsigned(n.element(0)) && is_unsigned(n.element(1)) ? Uint32 : Int32;
  const Value sums = t.call("aten::matmul", {cast(t, n.tensor(0), Double), cast(t, n.tensor(1), Double)});
  const Value whole = t.call("aten::to", {sums, c10::kLong});
  return {wrapped(t, t.call("aten::to", {whole, to}), to).as(to)};
}

// Scales sums of int32, which are in units of the product of the scales.
Value scaled(Translator& t, const Value& sums, const Value& unit) {
  return t.call("aten::mul", {t.call("aten::to", {sums, c10::kFloat}), unit}).as(Float);
}

// Translates QGemm. C is added in int32. Without y_zero_point the result is not rounded, yet a y_scale divides it.
Values qgemm(Translator& t, const NodeView& n) {
  const auto matrix = [&](size_t i, const char* transposed) {
    const Value x = n.tensor(i);
    return QuantizedMatrix{n.attr_int(transposed) != 0 ? t.call("aten::t", {x}).as(x.type) : x,
                           zero_point(t, n, i + 2)};
  };
  Value sums = integer_product(t, matrix(0, "transA"), matrix(3, "transB"));
  if (n.has(6)) sums = t.call("aten::add", {sums, n.tensor(6)});
  Value a_scale = scale(t, n, 1), b_scale = laid_out(t, "per_column", n.tensor(4), Float);
  if (const double alpha = n.attr_float("alpha"); alpha != 1) a_scale = t.call("aten::mul", {a_scale, alpha});
  Value unit = t.call("aten::mul", {a_scale, b_scale});
  if (n.has(7)) unit = t.call("aten::div", {unit, scale(t, n, 7)});
  const Value y = scaled(t, sums, unit);
  return {n.has(8) ? rounded_steps(t, n, y, 8, n.element(8)) : y};
}

// Gives the product in float. The scales are broadcast to the result.
Value product_in_float(Translator& t, const QuantizedMatrix& a, const QuantizedMatrix& b, const Value& a_scale,
                       const Value& b_scale, const Value& bias) {
  const auto in_float = [&](const Value& v) { return laid_out(t, "per_column", v, Float); };
  const Value unit = t.call("aten::mul", {in_float(a_scale), in_float(b_scale)});
  const Value y = scaled(t, integer_product(t, a, b), unit);
  return bias.absent() ? y : t.call("aten::add", {y, cast(t, bias, Float)}).as(Float);
}

// Translates MatMulIntegerToFloat. The text has an a_scale for each column of A; the kernel broadcasts it to the
// result.
Values matmul_integer_to_float(Translator& t, const NodeView& n) {
  const Value y = product_in_float(t, {n.tensor(0), zero_point(t, n, 4)}, {n.tensor(1), zero_point(t, n, 5)},
                                   n.tensor(2), n.tensor(3), n.tensor(6));
  return {cast(t, y, n.element(2))};
}

Values dynamic_quantize_matmul(Translator& t, const NodeView& n) {
  const Values a = t.call_all("dynamic_quantize_linear", {n.tensor(0)});
  return {product_in_float(t, {a[0].as(Uint8), a[2].as(Uint8)}, {n.tensor(1), zero_point(t, n, 3)}, a[1].as(Float),
                           n.tensor(2), n.tensor(4))};
}

Values dequantize_with_order(Translator& t, const NodeView& n) {
  const Value y = t.call("dequantize_with_order",
                         {n.tensor(0), n.tensor(1), n.attr_int("order_input"), n.attr_int("order_output")});
  return {cast(t, y.as(Float), n.attr_element("to"))};
}

}  // namespace

void register_contrib_quantization_ops(Registry& r) {
  r.op(kMicrosoft, "QuantizeLinear").since(1, quantize_linear);
  r.op(kMicrosoft, "DequantizeLinear").since(1, dequantize_linear);
  r.op(kMicrosoft, "QLinearAdd").since(1, qlinear_add);
  r.op(kMicrosoft, "QLinearMul").since(1, qlinear_mul);
  r.op(kMicrosoft, "QLinearConcat").since(1, qlinear_concat);
  r.op(kMicrosoft, "QLinearConv").since(1, in_either_layout(qlinear_conv));
  r.op(kMicrosoft, "QLinearAveragePool").since(1, in_either_layout(qlinear_average_pool));
  r.op(kMicrosoft, "QLinearGlobalAveragePool").since(1, in_either_layout(qlinear_global_average_pool));
  r.op(kMicrosoft, "QLinearLeakyRelu").since(1, qlinear_leaky_relu);
  r.op(kMicrosoft, "QLinearSigmoid").since(1, qlinear_sigmoid);
  r.op(kMicrosoft, "QLinearSoftmax").since(1, qlinear_softmax);
  r.op(kMicrosoft, "QLinearWhere").since(1, qlinear_where);
  r.op(kMicrosoft, "QGemm").since(1, qgemm);
  r.op(kMicrosoft, "MatMulIntegerToFloat").since(1, matmul_integer_to_float);
  r.op(kMicrosoft, "DynamicQuantizeMatMul").since(1, dynamic_quantize_matmul);
  r.op(kMicrosoft, "DynamicQuantizeLSTM").since(1, dynamic_quantize_lstm);
  r.op(kMicrosoft, "MatMulInteger16").since(1, matmul_integer_16);
  r.op(kMicrosoft, "MulInteger").since(1, mul_integer);
  r.op(kMicrosoft, "ReduceSumInteger").since(1, reduce_sum_integer);
  r.op(kMicrosoft, "QLinearReduceMean").since(1, qlinear_reduce_mean);
  r.op(kMicrosoft, "QuantizeWithOrder").since(1, script("quantize_with_order"));
  r.op(kMicrosoft, "DequantizeWithOrder").since(1, dequantize_with_order);
  r.op(kMicrosoft, "QOrderedMatMul").since(1, script("qordered_matmul"));
  r.op(kMicrosoft, "QOrderedGelu").since(1, script("qordered_gelu"));
}

}  // namespace onnxtorch
