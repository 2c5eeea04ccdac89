#include "passes/cpu/elements.h"

#include <cmath>
#include <string>
#include <utility>

#include "graph/known_type.h"
#include "graph/walk.h"
#include "kernels/standard/element_wise_pass.h"

namespace onnxtorch::chain {
namespace {

namespace jit = torch::jit;

std::string name_of(const jit::Node* node) { return c10::toString(node->schema().operator_name()); }

Element floats(Op op, size_t count) { return {op, std::vector(count, Type::Float)}; }
Element test(Op op, size_t count) { return {op, std::vector(count, Type::Float), Type::Mask}; }
Element masks(Op op, size_t count) { return {op, std::vector(count, Type::Mask), Type::Mask}; }

// Gives the operators of which the name tells all, but for the factor of an addend.
const std::unordered_map<std::string, Element>& plain_operators() {
  static const std::unordered_map<std::string, Element> operators = {
      {"aten::abs", floats(Op::Abs, 1)},
      {"aten::neg", floats(Op::Neg, 1)},
      {"aten::exp", floats(Op::Exp, 1)},
      {"aten::expm1", floats(Op::Expm1, 1)},
      {"aten::log", floats(Op::Log, 1)},
      {"aten::log1p", floats(Op::Log1p, 1)},
      {"aten::sqrt", floats(Op::Sqrt, 1)},
      {"aten::rsqrt", floats(Op::Rsqrt, 1)},
      {"aten::reciprocal", floats(Op::Reciprocal, 1)},
      {"aten::sigmoid", floats(Op::Sigmoid, 1)},
      {"aten::tanh", floats(Op::Tanh, 1)},
      {"aten::erf", floats(Op::Erf, 1)},
      {"aten::sin", floats(Op::Sin, 1)},
      {"aten::cos", floats(Op::Cos, 1)},
      {"aten::tan", floats(Op::Tan, 1)},
      {"aten::asin", floats(Op::Asin, 1)},
      {"aten::acos", floats(Op::Acos, 1)},
      {"aten::atan", floats(Op::Atan, 1)},
      {"aten::relu", floats(Op::Relu, 1)},
      {"aten::silu", floats(Op::Silu, 1)},
      {"aten::hardsigmoid", floats(Op::HardSigmoid, 1)},
      {"aten::hardswish", floats(Op::HardSwish, 1)},
      {"aten::floor", floats(Op::Floor, 1)},
      {"aten::ceil", floats(Op::Ceil, 1)},
      {"aten::round", floats(Op::Round, 1)},
      {"aten::trunc", floats(Op::Trunc, 1)},
      {"aten::sign", floats(Op::Sign, 1)},
      {"aten::square", floats(Op::Square, 1)},
      {"aten::add.Tensor", floats(Op::Add, 2)},
      {"aten::add.Scalar", floats(Op::Add, 2)},
      {"aten::sub.Tensor", floats(Op::Sub, 2)},
      {"aten::sub.Scalar", floats(Op::Sub, 2)},
      {"aten::mul.Tensor", floats(Op::Mul, 2)},
      {"aten::mul.Scalar", floats(Op::Mul, 2)},
      {"aten::div.Tensor", floats(Op::Div, 2)},
      {"aten::div.Scalar", floats(Op::Div, 2)},
      {"aten::maximum", floats(Op::Maximum, 2)},
      {"aten::minimum", floats(Op::Minimum, 2)},
      {"aten::eq.Tensor", test(Op::Eq, 2)},
      {"aten::eq.Scalar", test(Op::Eq, 2)},
      {"aten::ne.Tensor", test(Op::Ne, 2)},
      {"aten::ne.Scalar", test(Op::Ne, 2)},
      {"aten::lt.Tensor", test(Op::Lt, 2)},
      {"aten::lt.Scalar", test(Op::Lt, 2)},
      {"aten::le.Tensor", test(Op::Le, 2)},
      {"aten::le.Scalar", test(Op::Le, 2)},
      {"aten::gt.Tensor", test(Op::Gt, 2)},
      {"aten::gt.Scalar", test(Op::Gt, 2)},
      {"aten::ge.Tensor", test(Op::Ge, 2)},
      {"aten::ge.Scalar", test(Op::Ge, 2)},
      {"aten::isnan", test(Op::IsNan, 1)},
      {"aten::isinf", test(Op::IsInf, 1)},
      {"aten::logical_not", masks(Op::LogicalNot, 1)},
      {"aten::logical_and", masks(Op::LogicalAnd, 2)},
      {"aten::logical_or", masks(Op::LogicalOr, 2)},
      {"aten::logical_xor", masks(Op::LogicalXor, 2)},
      {"aten::bitwise_not", masks(Op::LogicalNot, 1)},
      {"aten::bitwise_and.Tensor", masks(Op::LogicalAnd, 2)},
      {"aten::bitwise_or.Tensor", masks(Op::LogicalOr, 2)},
      {"aten::bitwise_xor.Tensor", masks(Op::LogicalXor, 2)},
      {"aten::where.self", {Op::Where, {Type::Mask, Type::Float, Type::Float}}},
  };
  return operators;
}

// Gives the reductions that a chain may end in. If no dimensions are given, all are reduced.
const std::unordered_map<std::string, ChainProgram::Reduction>& reductions() {
  static const std::unordered_map<std::string, ChainProgram::Reduction> operators = {
      {"aten::sum.dim_IntList", {Reducer::Sum}},
      {"aten::mean.dim", {Reducer::Sum, /*is_mean=*/true}},
      {"aten::amax", {Reducer::Maximum}},
      {"aten::amin", {Reducer::Minimum}},
  };
  return operators;
}

}  // namespace

Elements::Elements(const Program& program, const Constants& constants, const Writers& writers, bool halves)
    : constants_(constants), writers_(writers), halves_(halves) {
  for_each_node(program.graph->block(), [this](jit::Node* node) {
    if (node->outputs().size() != 1) return;
    if (auto element = chainable(node)) {
      elements_.emplace(node, *std::move(element));
    } else if (auto reduction = reduction_of(node)) {
      reductions_.emplace(node, *std::move(reduction));
    }
  });
}

const Element* Elements::element(const jit::Node* node) const {
  const auto found = elements_.find(node);
  return found == elements_.end() ? nullptr : &found->second;
}

const ChainProgram::Reduction* Elements::reduction(const jit::Node* node) const {
  const auto found = reductions_.find(node);
  return found == reductions_.end() ? nullptr : &found->second;
}

// Gives the type that is known, or else expected by what the chain computes: where a run shows otherwise, ATen computes
// the chain.
std::optional<c10::ScalarType> Elements::likely_type(const jit::Value* value) const {
  if (const auto known = type_of(value)) return known;
  const Element* const from = element(value->node());
  return from ? std::optional(scalar_type(from->result)) : std::nullopt;
}

std::optional<Type> Elements::chain_type(c10::ScalarType type) const {
  switch (type) {
    case c10::kBool:
      return Type::Mask;
    case c10::kFloat:
      return Type::Float;
    case c10::kHalf:
      return halves_ ? std::optional(Type::Float16) : std::nullopt;
    case c10::kBFloat16:
      return halves_ ? std::optional(Type::BFloat16) : std::nullopt;
    default:
      return {};
  }
}

// Gives what a chain computes for a node, if its operands are of types that go together, as far as is known: where a
// run shows that they are not, ATen computes the chain.
std::optional<Element> Elements::chainable(jit::Node* node) const {
  auto element = element_of(node);
  if (!element || writers_.has_writers(node)) return {};
  for (const jit::Value* number : node->inputs().slice(element->operands.size())) {
    if (!constants_(number)) return {};
  }
  const bool is_cast = node->kind() == c10::aten::to;
  return is_cast || set_types(node, *element) ? element : std::nullopt;
}

// Sets all floats of an operator to the one type that they have. Gives false where there is none, or nothing is known.
bool Elements::set_types(const jit::Node* node, Element& element) const {
  std::optional<Type> floats;
  bool is_known = false;
  const auto agrees = [&](c10::ScalarType given, Type expected) {
    const auto type = chain_type(given);
    if (!type || (*type == Type::Mask) != (expected == Type::Mask)) return false;
    is_known = true;
    if (expected == Type::Mask) return true;
    return *type == *(floats = floats.value_or(*type));
  };
  if (const auto given = type_of(node->output()); given && !agrees(*given, element.result)) return false;
  is_known = is_known && element.result != Type::Mask;
  for (size_t i = 0; i < element.operands.size(); ++i) {
    const jit::Value* const operand = node->input(i);
    const bool is_mask = element.operands[i] == Type::Mask;
    if (!operand->type()->isSubtypeOf(*c10::TensorType::get())) {
      if (is_mask || !constants_.number(operand)) return false;
      continue;
    }
    const auto given = likely_type(operand);
    if (given ? !agrees(*given, element.operands[i]) : is_mask) return false;
  }
  if (element.result != Type::Mask) element.result = floats.value_or(Type::Float);
  for (Type& operand : element.operands) {
    if (operand != Type::Mask) operand = floats.value_or(Type::Float);
  }
  return is_known;
}

// Gives what the node computes, as far as its operator and its numbers tell.
std::optional<Element> Elements::element_of(jit::Node* node) const {
  if (!node->kind().is_aten() || node->outputs().size() != 1 || !node->maybeOperator()) return {};
  const std::string name = name_of(node);
  if (const auto found = plain_operators().find(name); found != plain_operators().end()) {
    const size_t count = found->second.operands.size();
    const bool has_factor = node->inputs().size() > count && constants_.number(node->input(count)) != 1.0;
    return has_factor ? std::nullopt : std::optional(found->second);
  }
  if (name == "aten::gelu") return gelu(node);
  if (name == "aten::leaky_relu") return leaky_relu(node);
  if (name == "aten::pow.Tensor_Scalar" || name == "aten::pow.Tensor_Tensor") return power(node);
  if (name == "aten::clamp") return clamp(node);
  if (name == "aten::to.dtype") return cast(node);
  return {};
}

std::optional<Element> Elements::gelu(jit::Node* node) const {
  const auto approximate = constants_.get<std::string>(node->input(1));
  if (!approximate) return {};
  return floats(*approximate == "tanh" ? Op::GeluTanh : Op::Gelu, 1);
}

std::optional<Element> Elements::leaky_relu(jit::Node* node) const {
  const auto slope = constants_.number(node->input(1));
  if (!slope) return {};
  Element element = floats(Op::LeakyRelu, 1);
  element.a = static_cast<float>(*slope);
  return element;
}

// Gives what a power computes. ATen computes some powers without a logarithm; Tensor exponents are taken so only where
// that gives the same.
std::optional<Element> Elements::power(jit::Node* node) const {
  const bool by_scalar = name_of(node) == "aten::pow.Tensor_Scalar";
  const auto exponent = constants_.number(node->input(1));
  const auto plain = [&](Op op) { return Element{op, {Type::Float}}; };
  if (exponent == 2.0) return plain(Op::Square);
  if (exponent == 3.0) return plain(Op::Cube);
  if (by_scalar && exponent == 0.5) return plain(Op::Sqrt);
  if (by_scalar && exponent == -0.5) return plain(Op::Rsqrt);
  if (exponent == -1.0) return plain(Op::Reciprocal);
  if (by_scalar && (exponent == 0.0 || exponent == 1.0 || exponent == -2.0)) return {};
  return Element{Op::Pow, {Type::Float, Type::Float}};
}

std::optional<Element> Elements::clamp(jit::Node* node) const {
  const auto bound = [&](size_t i) { return constants_.number(node->input(i)); };
  const bool has_low = !node->input(1)->mustBeNone(), has_high = !node->input(2)->mustBeNone();
  const auto low = bound(1), high = bound(2);
  // A bound of NaN makes everything NaN.
  if ((has_low && (!low || std::isnan(*low))) || (has_high && (!high || std::isnan(*high)))) return {};
  Element element{Op::Clamp, {Type::Float}};
  if (!has_high) element.op = Op::ClampMin;
  if (!has_low) element.op = Op::ClampMax;
  element.a = static_cast<float>(has_low ? *low : *high);
  element.b = has_high ? static_cast<float>(*high) : 0.0F;
  return element;
}

// Gives what a cast computes, between floats, and between them and masks.
std::optional<Element> Elements::cast(jit::Node* node) const {
  const auto given = likely_type(node->input(0));
  const auto wanted = constants_.get<int64_t>(node->input(1));
  const auto from = given ? chain_type(*given) : std::nullopt;
  const auto to = wanted ? chain_type(static_cast<c10::ScalarType>(*wanted)) : std::nullopt;
  if (!from || !to || from == to) return {};
  return Element{to == Type::Mask ? Op::ToBool : Op::ToFloat, {*from}, *to};
}

std::optional<ChainProgram::Reduction> Elements::reduction_of(jit::Node* node) const {
  if (!node->kind().is_aten() || !node->maybeOperator()) return {};
  const auto found = reductions().find(name_of(node));
  if (found == reductions().end()) return {};
  const Element* const reduced = element(node->input(0)->node());
  const auto dims = constants_(node->input(1));
  const auto keepdim = constants_.get<bool>(node->input(2));
  constexpr size_t kDtype = 3;
  const bool keeps_dtype = node->inputs().size() <= kDtype || node->input(kDtype)->mustBeNone();
  if (!reduced || reduced->result != Type::Float || !dims || !keepdim || !keeps_dtype || writers_.has_writers(node))
    return {};
  ChainProgram::Reduction reduction = found->second;
  if (dims->isIntList()) reduction.dims = dims->toIntVector();
  reduction.keepdim = *keepdim;
  return dims->isIntList() || dims->isNone() ? std::optional(reduction) : std::nullopt;
}

}  // namespace onnxtorch::chain
