#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cmath>

#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/symbols.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/onednn/packed.h"
#include "passes/cpu/packed/integer_weight.h"
#include "passes/cpu/packed/nodes.h"
#include "passes/cpu/passes.h"
#include "passes/general/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

const auto kDynamicQuantizeLinear = Symbol::fromQualString("onnx_torch::dynamic_quantize_linear");
const auto kDynamicQuantize = Symbol::fromQualString("onnx_torch::dynamic_quantize");
const auto kIntegerProduct = Symbol::fromQualString("onnx_torch::integer_product");

// Where sizes are open, the graph asks whether the scale and the zero point of a dynamic quantization have one element.
bool answer_numel(jit::Graph& graph) {
  bool found = false;
  for_each_node(graph.block(), [&](jit::Node* node) {
    if (!node->matches("aten::numel(Tensor self) -> int")) return;
    const jit::Value* of = node->input(0);
    while (of->node()->matches(kTo)) of = of->node()->input(0);
    if (of->node()->kind() != kDynamicQuantize || of->offset() == 0) return;
    const jit::WithInsertPoint at(node);
    node->output()->replaceAllUsesWith(graph.insertConstant(1));
    found = true;
  });
  return found;
}

// The result of a product in int32 as it is translated, with what is taken off its operands.
struct Product {
  const jit::Node* node;
  jit::Value *x, *zero_point;
  IntegerWeight weight;
};

class Recognition {
 public:
  explicit Recognition(Program& program) : program_(program), graph_(*program.graph), constants_(program) {}

  void run() {
    for_each_node(graph_.block(), [&](jit::Node* node) { visit(node); });
    eliminate_dead_code(program_.graph);
  }

 private:
  void visit(jit::Node* node) {
    if (node->outputs().size() != 1) return;
    const jit::WithInsertPoint at(node);
    jit::Value* const result = instead(node);
    if (!result) return;
    result->setType(node->output()->type());
    node->output()->replaceAllUsesWith(result);
  }

  jit::Value* instead(const jit::Node* node) {
    if (node->matches(kTo)) return integer_product(node);
    if (node->matches(kMul)) return times_scale(node);
    if (node->matches(kAdd)) return plus_addend(node);
    if (node->matches(kRelu)) return without_negative(node);
    return nullptr;
  }

  // The value of which the node is a cast to this type.
  jit::Value* cast_to(const jit::Node* node, at::ScalarType type) const {
    const bool fits = node->matches(kTo) && constants_.get<int64_t>(node->input(1)) == static_cast<int64_t>(type);
    return fits ? node->input(0) : nullptr;
  }

  // int32(int64(round(product of (x - zero_point) and (weight - zero_point)))).
  jit::Value* integer_product(const jit::Node* node) {
    const jit::Value* const wide = cast_to(node, c10::kInt);
    const jit::Value* const rounded = wide ? cast_to(wide->node(), c10::kLong) : nullptr;
    const jit::Node* const round = rounded ? as(rounded, kRound) : nullptr;
    const auto product = round ? product_of(round->input(0)->node()) : std::nullopt;
    const auto operation =
        product ? packed_integers(product->node, product->weight, constants_) : c10::intrusive_ptr<Packed>();
    if (!operation) return nullptr;
    jit::Value* const constant = bind_constant(program_, c10::IValue(operation));
    return insert(kIntegerProduct, {product->x, constant, product->zero_point}, product->node);
  }

  jit::Value* insert(Symbol kind, at::ArrayRef<jit::Value*> inputs, const jit::Node* source) {
    jit::Node* const node = graph_.insertNode(graph_.create(kind, inputs));
    node->setSourceRange(source->sourceRange());
    return node->output();
  }

  std::optional<Product> product_of(const jit::Node* node) {
    if (node->kind() != c10::aten::matmul && node->kind() != c10::aten::convolution) return {};
    if (node->kind() == c10::aten::convolution && !node->input(2)->mustBeNone()) return {};
    const auto weight = integer_weight(node->input(1), node->kind() == c10::aten::matmul ? 1 : 0, constants_);
    if (!weight) return {};
    const jit::Node* const padding = as(node->input(0), kPad);
    if (padding && constants_.number(padding->input(2)) != 0.0) return {};
    jit::Value* const given = padding ? padding->input(0) : node->input(0);
    const jit::Node* const less = as(given, kSub);
    if (less && constants_.number(less->input(2)) != 1.0) return {};
    jit::Value* const x = as_8_bit(less ? less->input(0) : given);
    if (!x) return {};
    jit::Value* const zero_point = less ? single_number(less->input(1), *type_of(x)) : constant(0, *type_of(x));
    if (!zero_point) return {};
    return Product{node, padding ? padded(padding, x, zero_point) : x, zero_point, *weight};
  }

  // Zeros around what has lost its zero point are zero points around the numbers.
  jit::Value* padded(const jit::Node* padding, jit::Value* x, jit::Value* zero_point) {
    jit::Value* const fill = graph_.insert(c10::aten::item, {zero_point}, {}, padding->sourceRange());
    jit::Value* const result =
        graph_.insert(c10::aten::constant_pad_nd, {x, padding->input(1), fill}, {}, padding->sourceRange());
    result->setType(type_like(padding->output(), type_of(x)));
    return result;
  }

  jit::Value* constant(double number, c10::ScalarType type) {
    return bind_constant(program_, at::scalar_tensor(number, type));
  }

  // The one number of this type that the value holds in a floating type.
  jit::Value* single_number(const jit::Value* value, c10::ScalarType type) {
    if (const auto number = constants_.number(value)) {
      const double low = type == c10::kByte ? 0 : -128;
      return *number >= low && *number <= low + 255 && *number == std::trunc(*number) ? constant(*number, type)
                                                                                      : nullptr;
    }
    jit::Value* const of = as_8_bit(value);
    return of && type_of(of) == type && is_single(of) ? of : nullptr;
  }

  // The numbers of 8 bits that the value holds in a floating type, maybe in another shape.
  jit::Value* as_8_bit(const jit::Value* value) const {
    const jit::Node* node = value->node();
    if (node->matches(kReshape)) node = node->input(0)->node();
    jit::Value* const of_float = cast_to(node, c10::kFloat);
    jit::Value* const of = of_float ? of_float : cast_to(node, c10::kDouble);
    return of && is_8_bit(type_of(of).value_or(c10::kFloat)) ? of : nullptr;
  }

  // Whether it is known to have one element.
  static bool is_single(const jit::Value* value) {
    return value->type()->expectRef<c10::TensorType>().numel() == size_t{1};
  }

  // --- What follows a product ---

  // The node of this kind that gives the value, if nothing else uses it.
  static jit::Node* only_for(jit::Value* value, Symbol kind) {
    return value->node()->kind() == kind && value->uses().size() == 1 ? value->node() : nullptr;
  }

  jit::Value* times_scale(const jit::Node* node) {
    for (const size_t i : {0, 1}) {
      jit::Value* const sums = cast_to(node->input(i)->node(), c10::kFloat);
      jit::Node* const product = sums ? only_for(sums, kIntegerProduct) : nullptr;
      if (!product || node->input(i)->uses().size() != 1 || !fits(node->input(1 - i), sums)) continue;
      return scaled(product, node->input(1 - i), {}, false);
    }
    return nullptr;
  }

  jit::Value* plus_addend(const jit::Node* node) {
    if (constants_.number(node->input(2)) != 1.0) return nullptr;
    for (const size_t i : {0, 1}) {
      jit::Node* const product = only_for(node->input(i), kScaledIntegerProduct);
      if (!product || constants_.get<bool>(product->input(5)).value_or(true)) continue;
      jit::Value* const addend = node->input(1 - i);
      if (!fits(addend, node->input(i))) continue;
      std::vector<jit::Value*> addends = addends_of(product).vec();
      addends.push_back(addend);
      return scaled(product, product->input(3), addends, false);
    }
    return nullptr;
  }

  jit::Value* without_negative(const jit::Node* node) {
    jit::Node* const product = only_for(node->input(0), kScaledIntegerProduct);
    if (!product) return nullptr;
    return scaled(product, product->input(3), addends_of(product), true);
  }

  static at::ArrayRef<jit::Value*> addends_of(const jit::Node* scaled) { return scaled->input(4)->node()->inputs(); }

  // Whether one pass may take the other operand, as far as sizes are known.
  bool fits(const jit::Value* other, const jit::Value* sums) const {
    if (type_of(other).value_or(c10::kFloat) != c10::kFloat) return false;
    if (computed(other, constants_)) return true;
    const auto& type = other->type()->expectRef<c10::TensorType>();
    const auto sizes = sums->type()->expectRef<c10::TensorType>().sizes().concrete_sizes();
    return !sizes || !type.sizes().concrete_sizes() || type.numel() == size_t{1} ||
           *type.sizes().concrete_sizes() == *sizes;
  }

  jit::Value* scaled(jit::Node* product, jit::Value* scale, at::ArrayRef<jit::Value*> addends, bool relu) {
    const auto inputs = product->inputs();
    jit::Value* const list = graph_.insertNode(graph_.createList(c10::TensorType::get(), addends))->output();
    return insert(kScaledIntegerProduct, {inputs[0], inputs[1], inputs[2], scale, list, graph_.insertConstant(relu)},
                  product);
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
};

}  // namespace

void find_dynamic_quantization(Program& program) {
  register_onednn();
  jit::Graph& graph = *program.graph;
  for_each_node(graph.block(), [&](jit::Node* node) {
    if (node->kind() != kDynamicQuantizeLinear) return;
    const jit::WithInsertPoint at(node);
    jit::Node* const quantize = graph.insertNode(graph.create(kDynamicQuantize, node->inputs(), 3));
    quantize->setSourceRange(node->sourceRange());
    const c10::ScalarType types[] = {c10::kByte, c10::kFloat, c10::kByte};
    for (size_t i = 0; i < 3; ++i) {
      const auto type = type_like(node->output(i), types[i]);
      quantize->output(i)->setType(i == 0 ? type : type->withSizes({}));
    }
    node->replaceAllUsesWith(quantize);
    node->destroy();
  });
}

void find_integer_products(Program& program) {
  if (answer_numel(*program.graph)) fold(program);
  Recognition(program).run();
}

}  // namespace onnxtorch
