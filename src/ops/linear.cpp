// MatMul, Gemm, Einsum, Det.
#include <cmath>

#include "ops/arithmetic.h"
#include "ops/ops.h"
#include "registry/registry.h"

namespace onnxtorch {
namespace {

Values matmul(Translator& t, const NodeView& n) {
  return {wrapped(t, t.call("aten::matmul", {n.tensor(0), n.tensor(1)}), n.element(0))};
}

// alpha or beta: ATen wants integers where the tensors are.
Arg factor(const NodeView& n, const char* name) {
  const double value = n.attr_float(name);
  if (is_floating(n.element(0))) return value;
  if (std::trunc(value) != value) n.unsupported(std::string(name) + " of a product of integers is not a whole number");
  return static_cast<int64_t>(value);
}

Values gemm(Translator& t, const NodeView& n) {
  const auto operand = [&](size_t i, const char* transposed) {
    return n.attr_int(transposed) != 0 ? t.call("aten::t", {n.tensor(i)}) : n.tensor(i);
  };
  const Value a = operand(0, "transA"), b = operand(1, "transB");
  const auto product = [&] {
    if (n.has(2)) {
      return t.call("aten::addmm", {n.tensor(2), a, b, kw("beta", factor(n, "beta")), kw("alpha", factor(n, "alpha"))});
    }
    const Value y = t.call("aten::mm", {a, b});
    return n.attr_float("alpha") == 1 ? y : t.call("aten::mul", {y, factor(n, "alpha")});
  };
  return {wrapped(t, product(), n.element(0))};
}

// Sums of integers are int64 in ATen, so that all is.
Values einsum(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  Values operands = n.tensors();
  if (is_floating(type)) return {t.call("aten::einsum", {n.attr_string("equation"), operands})};
  for (Value& operand : operands) operand = t.call("aten::to", {operand, c10::kLong});
  const Value sum = t.call("aten::einsum", {n.attr_string("equation"), operands});
  return {wrapped(t, t.call("aten::to", {sum, type}), type)};
}

// ATen has no kernel for 16 bits.
Values det(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  if (info(type).bits > 16) return {t.call("aten::linalg_det", {n.tensor(0)})};
  const Value x = t.call("aten::to", {n.tensor(0), c10::kFloat});
  return {t.call("aten::to", {t.call("aten::linalg_det", {x}), type})};
}

}  // namespace

void register_linear_ops(Registry& r) {
  r.op("MatMul").since(1, matmul).reviewed_to(13);
  r.op("Gemm").since(1, gemm).reviewed_to(13);
  r.op("Einsum").since(12, einsum).reviewed_to(28);
  r.op("Det").since(11, det).reviewed_to(22);
}

}  // namespace onnxtorch
