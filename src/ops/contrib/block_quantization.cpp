// Products with weights of 2 to 8 bits, quantized by blocks, and rows picked from such a weight.
#include <ATen/ops/tensor.h>

#include <array>
#include <bit>

#include "ops/cast.h"
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using enum ElementType;

void check_bits(const NodeView& n) {
  const int64_t bits = n.attr_int("bits");
  if (bits != 2 && bits != 4 && bits != 8) n.fail("bits is 2, 4 or 8");
}

// Fails where block_size is wrong. A block of size 0 is a whole row, where an operator has that.
void check_block_size(const NodeView& n, bool may_be_whole = false) {
  const int64_t size = n.attr_int("block_size");
  if (may_be_whole && size == 0) return;
  if (size < 16 || !std::has_single_bit(static_cast<uint64_t>(size))) {
    n.fail("block_size is a power of two from 16 on");
  }
}

// Makes the translator by a script whose node has blocks of elements of some bits.
TranslateFunction nbits(const char* function) {
  return [translate = script(function)](Translator& t, const NodeView& n) {
    check_bits(n);
    check_block_size(n);
    if (n.has_attribute("weight_prepacked") && n.attr_int("weight_prepacked") != 0) {
      n.unsupported("a weight in the layout of one of onnxruntime's kernels");
    }
    return translate(t, n);
  };
}

Values gather_block_quantized(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  check_block_size(n, is_floating(type));
  if (is_floating(type) && n.has(3)) n.fail("zero_points of floats");
  if (type == Uint8) check_bits(n);
  const int64_t bits = type == Uint8 ? n.attr_int("bits") : 8;
  const int64_t default_zero_point = type == Uint8 ? int64_t{1} << (bits - 1) : 0;
  return {t.call("gather_block_quantized",
                 {n.tensor(0), n.tensor(1), n.tensor(2), n.tensor(3), n.attr_int("gather_axis"),
                  n.attr_int("quantize_axis"), n.attr_int("block_size"), bits, default_zero_point})};
}

// The values that the 16 codes of FP4 stand for: floats of 4 bits with a bias of 3, in units of the largest.
constexpr std::array kFp4{0.0F,  5.208333333e-03F,  0.66666667F,  1.0F,  0.33333333F,  0.5F,  0.16666667F,  0.25F,
                          -0.0F, -5.208333333e-03F, -0.66666667F, -1.0F, -0.33333333F, -0.5F, -0.16666667F, -0.25F};
// The values that the 16 codes of NF4 stand for: quantiles of a normal distribution.
constexpr std::array kNf4{-1.0F,
                          -0.6961928009986877F,
                          -0.5250730514526367F,
                          -0.39491748809814453F,
                          -0.28444138169288635F,
                          -0.18477343022823334F,
                          -0.09105003625154495F,
                          0.0F,
                          0.07958029955625534F,
                          0.16093020141124725F,
                          0.24611230194568634F,
                          0.33791524171829224F,
                          0.44070982933044434F,
                          0.5626170039176941F,
                          0.7229568362236023F,
                          1.0F};

// Translates MatMulBnb4. onnxruntime's kernel multiplies by the transposed weight whatever transB says.
Values matmul_bnb4(Translator& t, const NodeView& n) {
  check_block_size(n);
  const int64_t type = n.attr_int("quant_type");
  if (type != 0 && type != 1) n.fail("quant_type is 0 (FP4) or 1 (NF4)");
  const Value values = t.constant(at::tensor(type == 0 ? kFp4 : kNf4), Float);
  return {t.call(
      n.attr_int("transB") != 0 ? "matmul_codes" : "matmul_transposed_codes",
      {n.tensor(0), n.tensor(1), n.tensor(2), values, n.attr_int("K"), n.attr_int("N"), n.attr_int("block_size")})};
}

// Multiplies A by a weight of floats whose blocks have a scale.
Values scaled_product(Translator& t, const NodeView& n, const Value& a, const Value& weight, const Value& scale,
                      const Value& bias) {
  const int64_t block_size = n.attr_int("block_size");
  if (block_size < 1) n.fail("block_size is positive");
  return {t.call("matmul_scaled_blocks", {a, weight, scale, bias, block_size, n.element(0)})};
}

// Rounds x to the nearest float of 8 bits times `scale`.
Value rounded_to_float8(Translator& t, const Value& x, const Value& scale) {
  const Value ratio = t.call("aten::div", {cast(t, x, Float), scale}).as(Float);
  return t.call("aten::mul", {cast(t, cast(t, ratio, Float8e4m3fn), Float), scale}).as(Float);
}

Values matmul_block_quantized_fp8_weight(Translator& t, const NodeView& n) {
  const Value a = n.has(3) ? rounded_to_float8(t, n.tensor(0), n.tensor(3)) : n.tensor(0);
  return scaled_product(t, n, a, cast(t, n.tensor(1), Float), n.tensor(2), n.tensor(4));
}

// Translates MatMulBlockQuantizedFp4Weight. Its input_scale is for kernels that round A.
Values matmul_block_quantized_fp4_weight(Translator& t, const NodeView& n) {
  const Value weight = t.call("small_float_value", {t.call("unpacked_bits", {n.tensor(1), 4}), 2, 1, 1});
  const Value bytes = t.call("aten::view_copy", {n.tensor(2), kw("dtype", Float8e4m3fn)}).as(Float8e4m3fn);
  const Value scale = t.call("aten::mul", {cast(t, bytes, Float), n.tensor(3)});
  return scaled_product(t, n, n.tensor(0), weight, scale, n.tensor(5));
}

}  // namespace

void register_contrib_block_quantization_ops(Registry& r) {
  r.op(kMicrosoft, "GatherBlockQuantized").since(1, gather_block_quantized);
  r.op(kMicrosoft, "MatMulBlockQuantizedFp4Weight").since(1, matmul_block_quantized_fp4_weight);
  r.op(kMicrosoft, "MatMulBlockQuantizedFp8Weight").since(1, matmul_block_quantized_fp8_weight);
  r.op(kMicrosoft, "MatMulBnb4").since(1, matmul_bnb4);
  r.op(kMicrosoft, "MatMulFpQ4").since(1, script("matmul_fp_q4"));
  r.op(kMicrosoft, "MatMulNBits").since(1, nbits("matmul_nbits"));
  r.op(kMicrosoft, "MatMulNBitsMlp").since(1, nbits("matmul_nbits_mlp"));
  r.op(kMicrosoft, "MatMulNBitsQkv").since(1, nbits("matmul_nbits_qkv"));
}

}  // namespace onnxtorch
