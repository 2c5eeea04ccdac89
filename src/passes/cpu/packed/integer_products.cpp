#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/symbols.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/onednn/operators.h"
#include "passes/cpu/packed/integer_weight.h"
#include "passes/cpu/packed/nodes.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

const auto kIntegerProduct = Symbol::fromQualString("onnx_torch::integer_product");

// Replaces DynamicQuantizeLinear by one operator. Whatever its input is, the type of each result is known, and that the
// last two are scalars.
void find_dynamic_quantization(jit::Graph& graph) {
  for_each_node(graph.block(), [](jit::Node* node) {
    if (node->kind() != kDynamicQuantizeLinear) return;
    const c10::ScalarType types[] = {c10::kByte, c10::kFloat, c10::kByte};
    for (size_t i = 0; i < 3; ++i) {
      const auto type = type_like(node->output(i), types[i]);
      node->output(i)->setType(i == 0 ? type : type->withSizes({}));
    }
    replace(node, "onnx_torch::dynamic_quantize", node->inputs());
  });
}

class ProductRecognition {
 public:
  explicit ProductRecognition(Program& program) : program_(program), graph_(*program.graph), constants_(program) {}

  void run() {
    replace_each(graph_, [&](const jit::Node* node) { return instead(node); });
    eliminate_dead_code(program_.graph);
  }

 private:
  jit::Value* instead(const jit::Node* node) {
    if (node->kind() == kMatMulInteger || node->kind() == kConvInteger) return integer_product(node);
    if (node->matches(kMul)) return times_scale(node);
    if (node->matches(kAdd)) return plus_addend(node);
    if (node->matches(kRelu)) return without_negative(node);
    return nullptr;
  }

  // Gives a MatMulInteger or ConvInteger as a product with its weight laid out; null where that comes with the run.
  jit::Value* integer_product(const jit::Node* node) {
    const auto type = type_of(node->input(0));
    jit::Value* const zero_point = type && is_8_bit(*type) ? single_zero_point(node->input(2), *type) : nullptr;
    const auto weight = zero_point ? weight_of_product(node, constants_) : std::nullopt;
    const auto operation = weight ? packed_integers(node, *weight, constants_) : c10::intrusive_ptr<Packed>();
    if (!operation) return nullptr;
    jit::Value* const constant = bind_constant(program_, c10::IValue(operation));
    jit::Value* const fill = graph_.insert(c10::aten::item, {zero_point}, {}, node->sourceRange());
    jit::Value* const x = padded_images(graph_, node, fill, constants_);
    return insert(kIntegerProduct, {x, constant, zero_point}, node, c10::kInt);
  }

  jit::Value* insert(Symbol kind, at::ArrayRef<jit::Value*> inputs, const jit::Node* source, c10::ScalarType type) {
    jit::Node* const node = graph_.insertNode(graph_.create(kind, inputs));
    node->setSourceRange(source->sourceRange());
    node->output()->setType(c10::TensorType::get()->withScalarType(type));
    return node->output();
  }

  // Gives the zero point of x, if it is one number of x's type.
  jit::Value* single_zero_point(jit::Value* given, c10::ScalarType type) {
    if (given->mustBeNone()) return bind_constant(program_, at::scalar_tensor(0, type));
    const bool is_single = given->type()->expectRef<c10::TensorType>().numel() == size_t{1} || constants_.number(given);
    return is_single && type_of(given) == type ? given : nullptr;
  }

  // --- What follows a product ---

  // Gives the node of this kind that computes the value, if nothing else uses the value.
  static jit::Node* only_for(jit::Value* value, Symbol kind) {
    return value->node()->kind() == kind && value->uses().size() == 1 ? value->node() : nullptr;
  }

  jit::Value* times_scale(const jit::Node* node) {
    for (const size_t i : {0, 1}) {
      const jit::Node* const cast = as(node->input(i), kTo);
      const bool is_float = cast && constants_.get<at::ScalarType>(cast->input(1)) == c10::kFloat;
      jit::Value* const sums = is_float ? cast->input(0) : nullptr;
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

  // Tells whether one pass over the sums may take the other operand, as far as sizes are known.
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
                  product, c10::kFloat);
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
};

}  // namespace

void find_integer_products(Program& program) {
  find_dynamic_quantization(*program.graph);
  ProductRecognition(program).run();
}

}  // namespace onnxtorch
