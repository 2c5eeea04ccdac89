// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv.
#include "ops/quantization.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ops/arithmetic.h"
#include "ops/cast.h"
#include "ops/ops.h"
#include "ops/spatial.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using enum ElementType;

// Gives an attribute whose absence is said by 0.
ElementType element_or_undefined(const NodeView& n, std::string_view name) {
  return n.has_attribute(name) && n.attr_int(name) != 0 ? n.attr_element(name) : Undefined;
}

int64_t int_or(const NodeView& n, std::string_view name, int64_t fallback) {
  return n.has_attribute(name) ? n.attr_int(name) : fallback;
}

bool is_known_zero(const Translator& t, const Value& v) {
  const auto known = t.known_ints(v);
  return known && std::ranges::all_of(*known, [](int64_t x) { return x == 0; });
}

bool is_of_rank_0(const Translator& t, const Value& parameter) {
  const auto sizes = t.known_sizes(parameter);
  return sizes && sizes->empty();
}

// Tells whether a scale or zero point has one element for certain.
bool is_single(const Translator& t, const Value& parameter) {
  const auto shape = t.known_shape(parameter);
  return shape && std::ranges::all_of(*shape, [](int64_t size) { return size == 1; });
}

// Gives a scale or zero point as `type`, broadcasting to x.
Value grid(Translator& t, const NodeView& n, const Value& parameter, const Value& x, ElementType type) {
  if (parameter.absent()) return parameter;
  Value wide = cast(t, parameter, type);
  if (is_of_rank_0(t, parameter)) return wide;
  const int64_t block_size = int_or(n, "block_size", 0);
  if (block_size == 0 && is_single(t, parameter)) return t.call("one_for_all", {wide});
  const Value sizes = t.call("aten::size", {x});
  const int64_t axis = int_or(n, "axis", 1);
  if (block_size > 0) return t.call("each_of_block", {wide, sizes, axis, block_size});
  return t.call("aten::reshape", {wide, t.call("quantization_shape", {t.call("aten::numel", {wide}), sizes, axis})});
}

// Gives the type to divide in: as the node says, or that of the scale, where it is one to divide in.
ElementType division_type(const NodeView& n) {
  if (const ElementType precision = element_or_undefined(n, "precision"); precision != Undefined) return precision;
  const ElementType scale = n.element(1);
  if (scale == Int32) return Double;
  if (!is_small_float(scale)) return scale;
  return is_floating(n.element(0)) ? n.element(0) : Float;
}

}  // namespace

Value zero_point(Translator& t, const NodeView& n, size_t i) {
  return n.has(i) && is_known_zero(t, n.input(i)) ? Value{} : n.tensor(i);
}

Value quantized(Translator& t, Value x, const Value& scale, const Value& zero_point, ElementType to, bool saturate) {
  if (is_floating(to)) {
    if (!scale.absent()) x = t.call("aten::div", {x, scale}).as(x.type);
    if (!zero_point.absent()) x = t.call("aten::add", {x, zero_point}).as(x.type);
    return cast(t, x, to, {.saturate = saturate});
  }
  const int bits = info(to).bits;
  const int64_t low = is_unsigned(to) ? 0 : -(int64_t{1} << (bits - 1));
  return t.call("quantize_linear", {x, scale, zero_point, low, low + (int64_t{1} << bits) - 1, to}).as(to);
}

Values quantize_linear(Translator& t, const NodeView& n) {
  const ElementType wanted = element_or_undefined(n, "output_dtype");
  const ElementType to = n.has(2) ? n.element(2) : wanted != Undefined ? wanted : Uint8;
  if (wanted != Undefined && wanted != to) n.fail("output_dtype is not the type of y_zero_point");
  const ElementType type = division_type(n);
  const Value x = n.tensor(0);
  const Value dividend = cast(t, x, type), scale = grid(t, n, n.tensor(1), x, type);
  const ElementType sum = type == Double ? Double : Float;
  const Value zero = grid(t, n, zero_point(t, n, 2), x, sum);
  const bool saturate = int_or(n, "saturate", 1) != 0;
  if (type == sum) return {quantized(t, dividend, scale, zero, to, saturate)};
  // The sum is wider, as half precision does not hold all that may come of adding the zero point.
  const Value ratio = cast(t, t.call("aten::div", {dividend, scale}).as(type), sum);
  return {quantized(t, ratio, {}, zero, to, saturate)};
}

Value dequantized(Translator& t, const Value& x, const Value& scale, const Value& zero_point, ElementType type) {
  return t.call("dequantize_linear", {x, scale, zero_point, type}).as(type);
}

// Translates DequantizeLinear. Float holds the differences of all types but int32, and that has no zero point.
Values dequantize_linear(Translator& t, const NodeView& n) {
  const ElementType wanted = element_or_undefined(n, "output_dtype");
  const ElementType to = wanted == Undefined ? n.element(1) : wanted;
  const Value x = n.tensor(0);
  const Value zero = grid(t, n, zero_point(t, n, 2), x, Float);
  return {cast(t, dequantized(t, x, grid(t, n, n.tensor(1), x, Float), zero, Float), to)};
}

// --- Products of quantized matrices ---

namespace {

constexpr int64_t kLargestProduct = int64_t{255} * 255;  // that of two int8 or uint8 elements less their zero points
constexpr int64_t kExactInFloat = 1 << 24;

// Gives the type in which sums of `terms` products are exact.
ElementType sum_type(std::optional<int64_t> terms) {
  return terms && *terms <= kExactInFloat / kLargestProduct ? Float : Double;
}

// Gives the type in which the sums of a product whose first factor this is are exact.
ElementType sum_type(const Translator& t, const Value& a) {
  const auto sizes = t.known_sizes(a);
  return sum_type(sizes && !sizes->empty() ? sizes->back() : std::nullopt);
}

}  // namespace

Value laid_out(Translator& t, const char* script, const Value& parameter, ElementType type) {
  if (parameter.absent()) return parameter;
  Value wide = cast(t, parameter, type);
  if (is_of_rank_0(t, parameter)) return wide;
  return t.call(is_single(t, parameter) ? "one_for_all" : script, {wide});
}

Value integer_product(Translator& t, const QuantizedMatrix& a, const QuantizedMatrix& b) {
  return t.call("matmul_integer", {a.x, b.x, a.zero_point, b.zero_point, sum_type(t, a.x)}).as(Int32);
}

Value column_scale(Translator& t, const Value& scale) { return laid_out(t, "per_column", scale, Float); }

namespace {

// Gives what a sum of products is, in steps of y_scale.
Value unit_of_sums(Translator& t, const Value& x_scale, const Value& w_scale, const Value& y_scale) {
  return t.call("aten::div", {t.call("aten::mul", {x_scale, w_scale}), y_scale});
}

Values matmul_integer(Translator& t, const NodeView& n) {
  return {integer_product(t, {n.tensor(0), zero_point(t, n, 2)}, {n.tensor(1), zero_point(t, n, 3)})};
}

Values qlinear_matmul(Translator& t, const NodeView& n) {
  const Value a = n.tensor(0);
  const ElementType type = sum_type(t, a);
  const auto of_rows = [&](const Value& parameter, ElementType as) { return laid_out(t, "per_row", parameter, as); };
  const Value unit =
      unit_of_sums(t, of_rows(n.tensor(1), Float), column_scale(t, n.tensor(4)), of_rows(n.tensor(6), Float));
  const Value steps = t.call("qlinear_matmul", {a, n.tensor(3), of_rows(zero_point(t, n, 2), type),
                                                laid_out(t, "per_column", zero_point(t, n, 5), type), type, unit})
                          .as(type);
  return {quantized(t, steps, {}, of_rows(zero_point(t, n, 7), Float), n.element(7))};
}

// --- Convolutions of quantized images ---

// Gives a scale or zero point of each index of an axis of w, or of all, as `type`.
Value along(Translator& t, const Value& parameter, int64_t axis, const Value& w, ElementType type) {
  if (parameter.absent()) return parameter;
  return t.call("along", {cast(t, parameter, type), axis, t.call("aten::dim", {w})});
}

std::optional<int64_t> filter_size(const Translator& t, const Value& w) {
  const auto shape = t.known_shape(w);
  if (!shape || shape->empty()) return {};
  return std::accumulate(shape->begin() + 1, shape->end(), int64_t{1}, std::multiplies<>());
}

// Convolves. Images less their zero point are padded with zeros, which stand for the zero point.
Value convolution(Translator& t, const NodeView& n, const Value& x, const Value& x_zero_point, const Value& w,
                  const Value& w_zero_point, const Value& bias) {
  const ElementType type = sum_type(filter_size(t, w));
  const Value images = dequantized(t, x, {}, along(t, x_zero_point, 1, w, type), type);
  const Value filters = dequantized(t, w, {}, along(t, w_zero_point, 0, w, type), type);
  const Value b = bias.absent() ? bias : cast(t, bias, type);
  return conv(t, NodeView(t, n.proto(), n.schema(), n.label(), {images, filters, b}))[0].as(type);
}

Values conv_integer(Translator& t, const NodeView& n) {
  const Value x_zero = zero_point(t, n, 2), w_zero = zero_point(t, n, 3);
  const auto c = aten_convolution(t, n);
  if (!c) return {t.call("int32_of", {convolution(t, n, n.tensor(0), x_zero, n.tensor(1), w_zero, {})})};
  const Value images_zero = is_single(t, x_zero) ? x_zero : along(t, x_zero, 1, c->w, n.element(0));
  const Value filters_zero = along(t, w_zero, 0, c->w, n.element(1));
  return {t.call("conv_integer", {c->x, c->w, images_zero, filters_zero, c->pads, c->stride, c->padding, c->dilation,
                                  c->groups, sum_type(filter_size(t, c->w))})};
}

}  // namespace

Values qlinear_conv(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0), w = n.tensor(3), x_zero = zero_point(t, n, 2), w_zero = zero_point(t, n, 5);
  const auto of_channels = [&](const Value& parameter) { return along(t, parameter, 1, w, Float); };
  const Value unit = unit_of_sums(t, of_channels(n.tensor(1)), of_channels(n.tensor(4)), of_channels(n.tensor(6)));
  const ElementType type = sum_type(filter_size(t, w));
  const NodeView product(t, n.proto(), n.schema(), n.label(), {x, w, n.tensor(8)});
  const auto c = aten_convolution(t, product);
  const Value steps =
      c ? t.call("qlinear_conv", {c->x, c->w, along(t, x_zero, 1, w, type), along(t, w_zero, 0, w, type), c->pads,
                                  c->stride, c->padding, c->dilation, c->groups, type, unit, n.tensor(8)})
        : t.call("aten::mul", {convolution(t, n, x, x_zero, w, w_zero, n.tensor(8)), unit});
  return {quantized(t, steps.as(type), {}, of_channels(zero_point(t, n, 7)), n.element(7))};
}

void register_quantization_ops(Registry& r) {
  // QuantizeLinear-13 has axis, 19 saturate, 21 blocks and output_dtype, 23 precision.
  r.op("QuantizeLinear").since(10, quantize_linear).reviewed_to(28);
  r.op("DequantizeLinear").since(10, dequantize_linear).reviewed_to(28);  // 13 has axis, 21 blocks, 23 output_dtype
  r.op("DynamicQuantizeLinear").since(11, script("dynamic_quantize_linear")).reviewed_to(11);
  r.op("MatMulInteger").since(10, matmul_integer).reviewed_to(10);
  r.op("QLinearMatMul").since(10, qlinear_matmul).reviewed_to(21);
  r.op("ConvInteger").since(10, conv_integer).reviewed_to(10);
  r.op("QLinearConv").since(10, qlinear_conv).reviewed_to(10);
}

}  // namespace onnxtorch
