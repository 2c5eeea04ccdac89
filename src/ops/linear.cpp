// MatMul, Gemm, Einsum, Det.
#include <cmath>

#include "ops/arithmetic.h"
#include "ops/einsum.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

Values matmul(Translator& t, const NodeView& n) {
  return {wrapped(t, t.call("aten::matmul", {n.tensor(0), n.tensor(1)}), n.element(0))};
}

bool is_int64(double value) { return std::trunc(value) == value && std::abs(value) < 0x1p63; }

// Gives alpha or beta as ATen wants it: an integer where the tensors are.
Arg factor(double value, bool whole) {
  if (whole) return static_cast<int64_t>(value);
  return value;
}

// Translates Gemm. Integers under a factor that is not whole are computed in double precision, and the result's
// fraction is cut off.
Values gemm(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  const double alpha = n.attr_float("alpha"), beta = n.attr_float("beta");
  const bool integers = !is_floating(type);
  const bool fractions = integers && !(is_int64(alpha) && is_int64(beta));
  const bool whole = integers && !fractions;
  const auto operand = [&](size_t i) {
    return fractions ? t.call("aten::to", {n.tensor(i), c10::kDouble}) : n.tensor(i);
  };
  const auto matrix = [&](size_t i, const char* transposed) {
    return n.attr_int(transposed) != 0 ? t.call("aten::t", {operand(i)}) : operand(i);
  };
  const Value a = matrix(0, "transA"), b = matrix(1, "transB");
  const auto product = [&] {
    // ATen may multiply a matrix by alpha before the sums, where an infinite one makes NaN of each zero.
    if (n.has(2) && std::isfinite(alpha)) {
      return t.call("aten::addmm",
                    {operand(2), a, b, kw("beta", factor(beta, whole)), kw("alpha", factor(alpha, whole))});
    }
    const Value sums = t.call("aten::mm", {a, b});
    const Value y = alpha == 1 ? sums : t.call("aten::mul", {sums, factor(alpha, whole)});
    return n.has(2) && beta != 0 ? t.call("aten::add", {y, operand(2), kw("alpha", factor(beta, whole))}) : y;
  };
  if (!fractions) return {wrapped(t, product(), type)};
  const Value integer = t.call("aten::to", {product(), c10::kLong});
  return {wrapped(t, t.call("aten::to", {integer, type}), type)};
}

// Translates Det. ATen has no kernel for 16 bits.
Values det(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  if (info(type).bits > 16) return {t.call("aten::linalg_det", {n.tensor(0)})};
  const Value x = t.call("aten::to", {n.tensor(0), c10::kFloat});
  return {t.call("aten::to", {t.call("aten::linalg_det", {x}), type})};
}

}  // namespace

void register_linear_ops(Registry& r) {
  r.op("MatMul").since(1, matmul).reviewed_to(13);
  r.op("Gemm").since(1, gemm).reviewed_to(13);  // C broadcasts by itself since 7, and may be absent since 11
  r.op("Einsum").since(12, einsum).reviewed_to(28);
  r.op("Det").since(11, det).reviewed_to(22);
}

}  // namespace onnxtorch
