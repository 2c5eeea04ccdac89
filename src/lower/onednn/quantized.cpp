#include "lower/onednn/quantized.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <limits>
#include <unordered_set>

#include "import/element_type.h"
#include "lower/onednn/integer_products.h"
#include "lower/onednn/nodes.h"
#include "lower/onednn/packed.h"
#include "lower/onednn/quantize.h"
#include "passes/constants.h"
#include "passes/walk.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

const auto kQuantize = Symbol::fromQualString("onnx_torch::quantize");
const auto kDequantize = Symbol::fromQualString("onnx_torch::dequantize");
const auto kDequantizeAlong = Symbol::fromQualString("onnx_torch::dequantize_along");
const auto kLookUp = Symbol::fromQualString("onnx_torch::look_up");
const auto kQuantizedAdd = Symbol::fromQualString("onnx_torch::quantized_add");

// All numbers that a type of 8 bits has.
at::Tensor all_numbers(at::ScalarType type) {
  return type == c10::kByte ? at::arange(0, 256, c10::kByte) : at::arange(-128, 128, c10::kChar);
}

// Weights of 8 bits as a product takes them, with one scale for all or one for each index of an axis.
struct Weights {
  at::Tensor numbers, scales;
  int64_t axis = 0;
};

class Recognition {
 public:
  explicit Recognition(Program& program) : program_(program), graph_(*program.graph), constants_(program) {}

  void run() {
    for_each_node(graph_.block(), [&](jit::Node* node) { visit(node); });
    jit::EliminateDeadCode(program_.graph);
  }

 private:
  void visit(jit::Node* node) {
    if (note_constant(node)) return;
    const jit::WithInsertPoint at(node);
    source_ = node->sourceRange();
    if (jit::Value* const result = bytes_instead(node)) {
      take_sizes(result, node->output());
      node->output()->replaceAllUsesWith(result);
    } else if (has_integer_products()) {
      keep_weights(node);
    }
  }

  // The result's sizes are those of a value of the plain graph.
  static void take_sizes(jit::Value* result, const jit::Value* plain) {
    const auto type = type_of(result);
    if (type) result->setType(plain->type()->expectRef<c10::TensorType>().withScalarType(type));
  }

  // Whether the node's result follows from constants alone, so that it is computed once anyway.
  bool note_constant(const jit::Node* node) {
    if (!node->kind().is_aten() || node->outputs().size() != 1) return false;
    for (const jit::Value* input : node->inputs()) {
      if (!is_constant(input)) return false;
    }
    return constant_.insert(node->output()).second;
  }

  bool is_constant(const jit::Value* value) const { return constant_.contains(value) || constants_(value); }

  jit::Value* bytes_instead(jit::Node* node) {
    if (node->outputs().size() != 1) return nullptr;
    if (jit::Value* const result = dequantized(node)) return result;
    if (jit::Value* const result = quantized(node)) return result;
    return moved(node);
  }

  // The only element of a constant that adds no dimensions to x.
  std::optional<double> scalar_for(const jit::Value* value, const jit::Value* x) const {
    const auto known = constants_.tensor(value);
    if (!known || !known->defined() || known->numel() != 1) return {};
    const auto rank = x->type()->expectRef<c10::TensorType>().dim();
    if (known->dim() > 0 && (!rank || static_cast<int64_t>(*rank) < known->dim())) return {};
    return known->item<double>();
  }

  std::optional<int64_t> zero_point_for(const jit::Value* value, const jit::Value* x) const {
    const auto known = scalar_for(value, x);
    return known ? std::optional(static_cast<int64_t>(*known)) : std::nullopt;
  }

  // A positive scale that is no subnormal number.
  std::optional<double> scale_for(const jit::Value* value, const jit::Value* x) const {
    if (type_of(value) != c10::kFloat) return {};
    const auto known = scalar_for(value, x);
    return known && std::isfinite(*known) && *known >= std::numeric_limits<float>::min() ? known : std::nullopt;
  }

  // (float(x) - zero_point) * scale.
  jit::Value* dequantized(jit::Node* node) {
    if (!node->matches(kMul)) return nullptr;
    jit::Value* x = node->input(0);
    int64_t zero_point = 0;
    if (const jit::Node* const less = as(x, kSub)) {
      const auto known = zero_point_for(less->input(1), less->input(0));
      if (!known || constants_.number(less->input(2)) != 1.0) return nullptr;
      zero_point = *known;
      x = less->input(0);
    }
    const jit::Node* const cast = as(x, kTo);
    if (!cast || constants_.get<int64_t>(cast->input(1)) != static_cast<int64_t>(c10::kFloat)) return nullptr;
    const auto type = type_of(cast->input(0));
    const auto scale = scale_for(node->input(1), x);
    if (!type || !is_8_bit(*type) || !scale) return nullptr;
    return dequantize(cast->input(0), *scale, zero_point);
  }

  // What is inserted stands for the node that is visited.
  jit::Value* insert(Symbol kind, at::ArrayRef<jit::NamedValue> arguments, at::ScalarType type) {
    jit::Value* const result = graph_.insert(kind, arguments, {}, source_);
    result->setType(c10::TensorType::get()->withScalarType(type));
    return result;
  }

  jit::Value* dequantize(jit::Value* x, double scale, int64_t zero_point) {
    return insert(kDequantize, {x, scale, zero_point}, c10::kFloat);
  }

  // As 8 bits: clamp(round(x / scale) + zero_point, low, high).
  jit::Value* quantized(jit::Node* node) {
    if (!node->matches(kTo)) return nullptr;
    const auto to = constants_.get<int64_t>(node->input(1));
    if (!to || !is_8_bit(static_cast<at::ScalarType>(*to))) return nullptr;
    const auto type = static_cast<at::ScalarType>(*to);
    const jit::Node* const clamp =
        as(node->input(0), "aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor");
    if (!clamp) return nullptr;
    const auto low = constants_.number(clamp->input(1)), high = constants_.number(clamp->input(2));
    if (!low || !high) return nullptr;
    const jit::Value* rounded = clamp->input(0);
    int64_t zero_point = 0;
    if (const jit::Node* const sum = as(rounded, kAdd)) {
      const auto known = zero_point_for(sum->input(1), sum->input(0));
      if (!known || constants_.number(sum->input(2)) != 1.0) return nullptr;
      zero_point = *known;
      rounded = sum->input(0);
    }
    const jit::Node* const round = as(rounded, kRound);
    const jit::Node* const ratio = round ? as(round->input(0), kDiv) : nullptr;
    // Both operands of a division are of one type.
    if (!ratio || type_of(ratio->input(0)).value_or(c10::kFloat) != c10::kFloat) return nullptr;
    const auto scale = scale_for(ratio->input(1), ratio->input(0));
    if (!scale) return nullptr;
    return quantize(ratio->input(0), *scale, zero_point, static_cast<int64_t>(*low), static_cast<int64_t>(*high), type);
  }

  jit::Value* quantize(jit::Value* x, double scale, int64_t zero_point, int64_t low, int64_t high,
                       at::ScalarType type) {
    const auto numbers = {jit::NamedValue(scale), jit::NamedValue(zero_point), jit::NamedValue(low),
                          jit::NamedValue(high), jit::NamedValue(static_cast<int64_t>(type))};
    const auto with = [&](std::vector<jit::NamedValue> arguments) {
      arguments.insert(arguments.end(), numbers);
      return arguments;
    };
    if (jit::Value* const result = looked_up(
            x, [&](const at::Tensor& y) { return onednn::quantize(y, scale, zero_point, low, high, type); })) {
      return result;
    }
    // What is below zero becomes the zero point.
    if (const jit::Node* const relu = as(x, kRelu))
      return quantize(relu->input(0), scale, zero_point, std::max(low, zero_point), high, type);
    const jit::Node* const sum = as(x, kAdd);
    if (sum && x->uses().size() == 1 && constants_.number(sum->input(2)) == 1.0) {
      for (const size_t i : {0, 1}) {
        jit::Value *const a = sum->input(i), *const b = sum->input(1 - i);
        if (a->node()->kind() != kDequantize) continue;
        const bool both = b->node()->kind() == kDequantize;
        const jit::Node* const of_a = a->node();
        return insert(kQuantizedAdd,
                      with({of_a->input(0), of_a->input(1), of_a->input(2), both ? b->node()->input(0) : b,
                            both ? b->node()->input(1) : graph_.insertConstant(1.0),
                            both ? b->node()->input(2) : graph_.insertConstant(0)}),
                      type);
      }
    }
    // What only moves elements may as well come after.
    if (is_movement(x->node()) && x->uses().size() == 1) {
      jit::Value* const result = quantize(x->node()->input(0), scale, zero_point, low, high, type);
      take_sizes(result, x->node()->input(0));
      return move(x->node(), result);
    }
    return insert(kQuantize, with({x}), type);
  }

  // x, if it is computed element by element of one dequantized tensor: a table says what becomes of each number.
  template <typename Quantize>
  jit::Value* looked_up(jit::Value* x, const Quantize& quantize) {
    const jit::Value* origin = nullptr;
    const auto computed = compute(x, origin, 0);
    if (!computed || !origin || computed->dim() != 1 || computed->scalar_type() != c10::kFloat) return nullptr;
    jit::Value* const codes = origin->node()->input(0);
    const at::Tensor numbers = all_numbers(*type_of(codes)), table = quantize(*computed);
    if (table.scalar_type() == numbers.scalar_type() && at::equal(table, numbers)) return codes;
    return insert(kLookUp, {codes, bind_constant(program_, table)}, table.scalar_type());
  }

  // The value for each number of 8 bits that may come.
  std::optional<at::Tensor> compute(jit::Value* value, const jit::Value*& origin, int depth) {
    constexpr int kDeepest = 16;
    jit::Node* const node = value->node();
    if (node->kind() == kDequantize) {
      if (origin && origin != value) return {};
      origin = value;
      const auto type = type_of(node->input(0));
      if (!type) return {};
      return onednn::dequantize(all_numbers(*type), *constants_.number(node->input(1)),
                                *constants_.get<int64_t>(node->input(2)));
    }
    if (depth == kDeepest || !is_element_wise(node)) return {};
    jit::Stack stack;
    for (jit::Value* input : node->inputs()) {
      if (auto known = constants_(input)) {
        if (known->isTensor() && known->toTensor().defined() && !scalar_for(input, value)) return {};
        stack.push_back(*std::move(known));
      } else if (const auto computed = compute(input, origin, depth + 1)) {
        stack.emplace_back(*computed);
      } else {
        return {};
      }
    }
    node->getOperation()(stack);
    return stack.back().isTensor() && stack.back().toTensor().dim() == 1 ? std::optional(stack.back().toTensor())
                                                                         : std::nullopt;
  }

  static bool is_element_wise(const jit::Node* node) {
    static const std::unordered_set<std::string> names = {
        "abs",  "add", "clamp",       "clamp_max", "clamp_min", "div",      "elu",        "eq",  "erf",  "exp",  "ge",
        "gelu", "gt",  "hardsigmoid", "hardswish", "isnan",     "le",       "leaky_relu", "log", "lt",   "mul",  "ne",
        "neg",  "pow", "relu",        "sigmoid",   "silu",      "softplus", "sqrt",       "sub", "tanh", "where"};
    return node->kind().is_aten() && node->outputs().size() == 1 && names.contains(node->kind().toUnqualString());
  }

  static bool is_movement(const jit::Node* node) {
    static const std::unordered_set<std::string> names = {"reshape", "view",    "permute", "transpose",
                                                          "t",       "flatten", "squeeze", "unsqueeze"};
    return node->kind().is_aten() && names.contains(node->kind().toUnqualString());
  }

  // The node's movement of another tensor's elements.
  jit::Value* move(jit::Node* node, jit::Value* of) {
    jit::Node* const same = graph_.createClone(node, [](jit::Value* value) { return value; });
    same->replaceInput(0, of);
    same->setSourceRange(node->sourceRange());
    graph_.insertNode(same);
    same->output()->setType(c10::TensorType::get()->withScalarType(type_of(of)));
    take_sizes(same->output(), node->output());
    return same->output();
  }

  // The elements of a dequantized tensor in another order, or with zeros around: the same of its numbers.
  jit::Value* moved(jit::Node* node) {
    const bool pads = node->matches("aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor") &&
                      constants_.number(node->input(2)) == 0.0;
    if (!pads && !is_movement(node)) return nullptr;
    const jit::Node* const of = node->input(0)->node();
    if (of->kind() != kDequantize) return nullptr;
    jit::Value* const result = move(node, of->input(0));
    if (pads) result->node()->replaceInput(2, of->input(2));  // the zero point is what zero stands for
    return insert(kDequantize, {result, of->input(1), of->input(2)}, c10::kFloat);
  }

  // --- Products ---

  // A product of a dequantized tensor takes its weight in 8 bits, too.
  void keep_weights(jit::Node* node) {
    const bool convolution = node->kind() == c10::aten::convolution;
    const bool affine = node->kind() == c10::aten::addmm;
    if (!convolution && !affine && node->kind() != c10::aten::matmul && node->kind() != c10::aten::mm) return;
    const size_t x = affine ? 1 : 0;
    if (node->input(x)->node()->kind() != kDequantize) return;
    if (convolution && constants_.get<bool>(node->input(6)).value_or(true)) return;
    auto weights = weights_of(node->input(x + 1));
    if (!weights || weights->numbers.numel() == 0) return;
    const bool fits =
        convolution ? weights->numbers.dim() >= 3 && weights->numbers.dim() <= 5 : weights->numbers.dim() == 2;
    const int64_t out = convolution ? 0 : 1;
    if (!fits || (weights->scales.numel() != 1 && weights->axis != out)) return;
    jit::Value* const numbers = bind_constant(program_, weights->numbers);
    jit::Value* const scales = bind_constant(program_, weights->scales.reshape(-1));
    jit::Value* const weight = insert(kDequantizeAlong, {numbers, scales, out}, c10::kFloat);
    weight->setType(node->input(x + 1)->type());
    node->replaceInput(x + 1, weight);
  }

  // float(numbers) * scales, in int8 and without a zero point.
  std::optional<Weights> weights_of(const jit::Value* value) const {
    const jit::Node* const node = value->node();
    if (const jit::Node* const transposed = as(value, "aten::t(Tensor(a) self) -> Tensor(a)")) {
      auto found = weights_of(transposed->input(0));
      if (!found || found->numbers.dim() != 2) return {};
      return Weights{found->numbers.t(), found->scales, 1 - found->axis};
    }
    const jit::Node* const cast = node->matches(kMul) ? as(node->input(0), kTo) : nullptr;
    if (!cast || constants_.get<int64_t>(cast->input(1)) != static_cast<int64_t>(c10::kFloat)) return {};
    const auto numbers = constants_.tensor(cast->input(0)), scales = constants_.tensor(node->input(1));
    if (!numbers || !numbers->defined() || numbers->scalar_type() != c10::kChar) return {};
    if (!scales || !scales->defined() || scales->scalar_type() != c10::kFloat || scales->dim() > numbers->dim())
      return {};
    if (!at::isfinite(*scales).all().item<bool>()) return {};
    Weights found{*numbers, *scales};
    if (scales->numel() == 1) return found;
    for (int64_t i = 0; i < scales->dim(); ++i) {
      if (scales->size(i) != scales->numel()) continue;
      found.axis = i + numbers->dim() - scales->dim();
      return found;
    }
    return {};
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
  std::unordered_set<const jit::Value*> constant_;
  jit::SourceRange source_;
};

// Where an input's sizes are open, its value has no element type yet.
void note_input_types(Program& program) {
  for (size_t i = 0; i < program.graph_inputs.size(); ++i) {
    const auto& [role, index] = program.graph_inputs[i];
    jit::Value* const value = program.graph->inputs()[i];
    if (role != GraphInput::Role::Input || type_of(value)) continue;
    const ValueType& type = program.inputs[index].type;
    const auto known = value->type()->cast<c10::TensorType>();
    if (type.kind == ValueType::Kind::Tensor && known)
      value->setType(known->withScalarType(storage_dtype(type.element)));
  }
}

}  // namespace

void find_quantized(Program& program) {
  const c10::InferenceMode inference;
  register_onednn();
  note_input_types(program);
  find_integer_products(program);
  Recognition(program).run();
}

}  // namespace onnxtorch
