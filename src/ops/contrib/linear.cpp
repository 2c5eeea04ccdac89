// Products, convolutions and pools: with an activation, a scale or a transposition, with channels last, with a mask.
#include <ATen/ops/scalar_tensor.h>

#include "ops/cast.h"
#include "ops/contrib/contrib.h"
#include "ops/contrib/fused.h"
#include "ops/spatial.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using enum ElementType;

// --- Products ---

// Gives the matrices of an operand, whose dimensions the attributes permute.
Value matrices(Translator& t, const Value& x, bool transposed, bool batch_transposed) {
  if (!transposed && !batch_transposed) return x;
  const Value rank = t.call("aten::dim", {x});
  return t.call("aten::permute", {x, t.call("matrix_order", {rank, transposed, batch_transposed})});
}

Values fused_matmul(Translator& t, const NodeView& n) {
  const Value a = matrices(t, n.tensor(0), n.attr_flag("transA"), n.attr_flag("transBatchA"));
  const Value b = matrices(t, n.tensor(1), n.attr_flag("transB"), n.attr_flag("transBatchB"));
  Value y = t.call("aten::matmul", {a, b});
  const double alpha = n.attr_float("alpha");
  // The factor is a tensor, as in a model whose nodes are not fused.
  if (alpha != 1) y = t.call("aten::mul", {y, t.constant(at::scalar_tensor(alpha, c10::kFloat), Float)});
  return {activated(t, n, y.as(n.element(0)))};
}

Values fused_gemm(Translator& t, const NodeView& n) {
  return {activated(t, n, standard(t, n, "Gemm", n.inputs())[0].as(n.element(0)))};
}

// Translates GemmFloat8, in float. dtype is the type of the output, and without a C that counts (beta) there is none.
Values gemm_float8(Translator& t, const NodeView& n) {
  Values inputs = n.inputs();
  for (Value& input : inputs) {
    if (!input.absent()) input = cast(t, input, Float);
  }
  static const TranslateFunction translate = script("gemm_float8");
  return {cast(t, translate(t, with_inputs(t, n, inputs))[0].as(Float), n.attr_element("dtype"))};
}

// --- Convolutions ---

Values conv_transpose_with_dynamic_pads(Translator& t, const NodeView& n) {
  const Value pads = n.has(2) ? t.call("dynamic_pads", {n.ints(2), t.call("aten::dim", {n.tensor(0)})}) : Value{};
  return conv_transpose(t, with_inputs(t, n, {n.input(0), n.input(1), n.input(3)}), pads);
}

// --- Pools ---

Values max_pool(Translator& t, const NodeView& n) { return standard(t, n, "MaxPool", n.inputs()); }

// Translates MaxpoolWithMask. Without a kernel_shape, which the kernel refuses, the window is the whole image.
Values max_pool_with_mask(Translator& t, const NodeView& n) {
  const auto rank = spatial_rank(t, n);
  if (!rank) n.unsupported("of an unknown number of dimensions");
  const Value x = of_spatial_rank(t, n, n.tensor(0), *rank);
  const Value kernel = n.has_attribute("kernel_shape") ? t.scalar(n.attr_ints("kernel_shape"))
                                                       : t.call("aten::slice", {t.call("aten::size", {x}), 2, none});
  const std::vector<int64_t> strides = per_axis(n, "strides", *rank, 1), ones(*rank, 1);
  return {t.call("max_pool_with_mask", {x, n.tensor(1), kernel, strides, window_pads(t, n, x, kernel, strides, ones)})};
}

}  // namespace

void register_contrib_linear_ops(Registry& r) {
  r.op(kMicrosoft, "ComplexMul").since(1, script("complex_mul", {kw("conjugate", false)}));
  r.op(kMicrosoft, "ComplexMulConj").since(1, script("complex_mul", {kw("conjugate", true)}));
  r.op(kMicrosoft, "ConvTransposeWithDynamicPads").since(1, conv_transpose_with_dynamic_pads);
  r.op(kMicrosoft, "FusedConv").since(1, fused_conv);
  r.op(kMicrosoft, "FusedGemm").since(1, fused_gemm);
  r.op(kMicrosoft, "FusedMatMul").since(1, fused_matmul);
  r.op(kMicrosoft, "FusedMatMulActivation").since(1, fused_matmul);
  r.op(kMicrosoft, "GemmFloat8").since(1, gemm_float8);
  r.op(kMicrosoft, "MaxpoolWithMask").since(1, max_pool_with_mask);
  // NhwcConv has filters with the channels last, too: so the optimizer writes them and the kernels take them, whatever
  // the text says.
  r.op(kMicrosoft, "NhwcConv").since(1, in_layout(channels_last(), fused_conv, {0, 1}));
  r.op(kMicrosoft, "NhwcFusedConv").since(1, in_layout(channels_last(), fused_conv, {0, 3}));
  r.op(kMicrosoft, "NhwcMaxPool").since(1, in_layout(channels_last(), max_pool));
  r.op(kMicrosoft, "TransposeMatMul").since(1, fused_matmul);
}

}  // namespace onnxtorch
