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

const auto kInt32Of = Symbol::fromQualString("onnx_torch::int32_of");
const auto kPerRow = Symbol::fromQualString("onnx_torch::per_row");
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

// A product in int32 as it is translated, with its operands and the zero points that are taken off them.
struct IntegerProduct {
  const jit::Node* node;
  jit::Value *x, *zero_point;
  IntegerWeight weight;
};

class Recognition {
 public:
  explicit Recognition(Program& program) : program_(program), graph_(*program.graph), constants_(program) {}

  void run() {
    replace_each(graph_, [&](const jit::Node* node) { return instead(node); });
    eliminate_dead_code(program_.graph);
  }

 private:
  jit::Value* instead(const jit::Node* node) {
    if (node->kind() == kInt32Of) return integer_product(node->input(0)->node());
    if (node->matches(kMul)) return times_scale(node);
    if (node->matches(kAdd)) return plus_addend(node);
    if (node->matches(kRelu)) return without_negative(node);
    return nullptr;
  }

  // Gives the node as a product of integers; null where it is none.
  jit::Value* integer_product(const jit::Node* node) {
    const auto product = product_of(node);
    const auto operation =
        product ? packed_integers(product->node, product->weight, constants_) : c10::intrusive_ptr<Packed>();
    if (!operation) return nullptr;
    jit::Value* const constant = bind_constant(program_, c10::IValue(operation));
    return insert(kIntegerProduct, {product->x, constant, product->zero_point}, product->node, c10::kInt);
  }

  jit::Value* insert(Symbol kind, at::ArrayRef<jit::Value*> inputs, const jit::Node* source, c10::ScalarType type) {
    jit::Node* const node = graph_.insertNode(graph_.create(kind, inputs));
    node->setSourceRange(source->sourceRange());
    node->output()->setType(c10::TensorType::get()->withScalarType(type));
    return node->output();
  }

  std::optional<IntegerProduct> product_of(const jit::Node* node) {
    if (node->kind() != c10::aten::matmul && node->kind() != c10::aten::convolution) return {};
    if (node->kind() == c10::aten::convolution && !node->input(2)->mustBeNone()) return {};
    const auto weight = integer_weight(node->input(1), node->kind() == c10::aten::matmul ? 1 : 0, constants_);
    if (!weight) return {};
    const jit::Node* const padding = as(node->input(0), kPad);
    if (padding && constants_.number(padding->input(2)) != 0.0) return {};
    const jit::Node* const steps = as(padding ? padding->input(0) : node->input(0), kDequantizeLinear);
    if (!steps || !steps->input(1)->mustBeNone()) return {};
    jit::Value* const x = steps->input(0);
    const auto type = type_of(x);
    if (!type || !is_8_bit(*type)) return {};
    jit::Value* const zero_point =
        steps->input(2)->mustBeNone() ? constant(0, *type) : single_number(steps->input(2), *type);
    if (!zero_point) return {};
    return IntegerProduct{node, padding ? padded(padding, x, zero_point) : x, zero_point, *weight};
  }

  // Pads x with its zero point: zeros around what has lost its zero point are zero points around the integers.
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

  // Gives the one number of this type that the value holds in a floating type, maybe in another shape.
  jit::Value* single_number(const jit::Value* value, c10::ScalarType type) {
    if (const auto number = constants_.number(value))
      return is_8_bit_number(*number, type) ? constant(*number, type) : nullptr;
    const jit::Node* node = value->node();
    if (node->kind() == c10::aten::reshape || node->kind() == kPerRow) node = node->input(0)->node();
    jit::Value* const of = node->matches(kTo) ? node->input(0) : nullptr;
    const bool is_single = of && of->type()->expectRef<c10::TensorType>().numel() == size_t{1};
    return is_single && type_of(of) == type ? of : nullptr;
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
  Recognition(program).run();
}

}  // namespace onnxtorch
