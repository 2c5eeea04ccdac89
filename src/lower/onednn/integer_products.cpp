#include "lower/onednn/integer_products.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include "lower/onednn/nodes.h"
#include "lower/onednn/packed.h"
#include "passes/constants.h"
#include "passes/fold.h"
#include "passes/pattern.h"
#include "passes/walk.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

const auto kDynamicQuantize = Symbol::fromQualString("onnx_torch::dynamic_quantize");
const auto kIntegerProduct = Symbol::fromQualString("onnx_torch::integer_product");
const auto kScaledIntegerProduct = Symbol::fromQualString("onnx_torch::scaled_integer_product");

// As src/ops/scripts/quantization.py says it.
constexpr auto kDynamicQuantizeLinear = R"(
graph(%x, %zero, %most, %one, %byte, %no, %none):
  %least : Tensor = aten::min(%x)
  %low : Tensor = aten::clamp_max(%least, %zero)
  %largest : Tensor = aten::max(%x)
  %high : Tensor = aten::clamp_min(%largest, %zero)
  %same : Tensor = aten::eq(%high, %low)
  %ones : Tensor = aten::ones_like(%high, %none, %none, %none, %none, %none)
  %range : Tensor = aten::sub(%high, %low, %one)
  %step : Tensor = aten::div(%range, %most)
  %scale : Tensor = aten::where(%same, %ones, %step)
  %negative : Tensor = aten::neg(%low)
  %place : Tensor = aten::div(%negative, %scale)
  %within : Tensor = aten::clamp(%place, %zero, %most)
  %zero_point : Tensor = aten::round(%within)
  %ratio : Tensor = aten::div(%x, %scale)
  %rounded : Tensor = aten::round(%ratio)
  %sum : Tensor = aten::add(%rounded, %zero_point, %one)
  %number : Tensor = aten::clamp(%sum, %zero, %most)
  %y : Tensor = aten::to(%number, %byte, %no, %no, %none)
  %z : Tensor = aten::to(%zero_point, %byte, %no, %no, %none)
  %result : (Tensor, Tensor, Tensor) = prim::TupleConstruct(%y, %scale, %z)
  return (%result))";

// What is known of the results; only their element types where sizes are open.
void set_types(const jit::Node* tuple_user, jit::Node* quantize) {
  const c10::ScalarType types[] = {c10::kByte, c10::kFloat, c10::kByte};
  for (size_t i = 0; i < 3; ++i) {
    auto type = tuple_user ? tuple_user->output(i)->type()->expect<c10::TensorType>() : c10::TensorType::get();
    if (i > 0) type = type->withSizes({});
    quantize->output(i)->setType(type->withScalarType(types[i]));
  }
}

void find_dynamic_quantization(Program& program) {
  rewrite(program, kDynamicQuantizeLinear, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    const bool fits = found.is("zero", 0) && found.is("most", 255) && found.is("one", 1) &&
                      found.constants.get<int64_t>(found["byte"]) == static_cast<int64_t>(c10::kByte);
    if (!fits) return nullptr;
    jit::Node* const quantize = graph.insertNode(graph.create(kDynamicQuantize, {found["x"]}, 3));
    quantize->setSourceRange(found["result"]->node()->sourceRange());
    const auto uses = found["result"]->uses();
    const bool unpacked = uses.size() == 1 && uses[0].user->kind() == c10::prim::TupleUnpack;
    set_types(unpacked ? uses[0].user : nullptr, quantize);
    return graph.insertNode(graph.createTuple(quantize->outputs()))->output();
  });
  jit::LowerSimpleTuples(program.graph);
}

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

// A weight of 8 bits, with its zero points as packed_integers takes them.
struct Weight {
  at::Tensor numbers, zero_points;
};

// The result of a product in int32 as it is translated, with what is taken off its operands.
struct Product {
  const jit::Node* node;
  jit::Value *x, *zero_point;
  Weight weight;
};

// Weights of 8 bits less their zero points, which are known as floats: numbers of 8 bits, with zero points that make
// the same of them. Nothing where they are no whole numbers, or of a wider range.
std::optional<Weight> as_integers(const at::Tensor& weight, int64_t channel_dim) {
  const at::Tensor channels = weight.transpose(0, channel_dim).flatten(1);
  const at::Tensor low = channels.amin(1), high = channels.amax(1);
  const at::Tensor shifts = at::clamp_min(high - 127, 0) + at::clamp_max(low + 128, 0);
  std::vector<int64_t> shape(weight.dim(), 1);
  shape[channel_dim] = -1;
  const at::Tensor numbers = weight - shifts.reshape(shape), bytes = numbers.clamp(-128, 127).to(c10::kChar);
  if (!at::eq(bytes, numbers).all().item<bool>()) return {};
  return Weight{bytes, at::neg(shifts).to(c10::kInt)};
}

class Recognition {
 public:
  explicit Recognition(Program& program) : program_(program), graph_(*program.graph), constants_(program) {}

  void run() {
    for_each_node(graph_.block(), [&](jit::Node* node) { visit(node); });
    jit::EliminateDeadCode(program_.graph);
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
    const auto operation = product ? packed(*product) : c10::intrusive_ptr<Packed>();
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
    const auto weight = weight_of(node->input(1), node->kind() == c10::aten::matmul ? 1 : 0);
    if (!weight) return {};
    const jit::Node* const less = as(node->input(0), kSub);
    if (less && constants_.number(less->input(2)) != 1.0) return {};
    jit::Value* const x = as_8_bit(less ? less->input(0) : node->input(0));
    if (!x) return {};
    if (!less) return Product{node, x, bind_constant(program_, at::zeros({}, *type_of(x))), *weight};
    jit::Value* const zero_point = as_8_bit(less->input(1));
    const bool fits = zero_point && type_of(zero_point) == type_of(x) && is_single(zero_point);
    return fits ? std::optional(Product{node, x, zero_point, *weight}) : std::nullopt;
  }

  // float(numbers), less a zero point for all or for each channel.
  std::optional<Weight> weight_of(const jit::Value* value, int64_t channel_dim) const {
    const auto known = constants_.tensor(value);
    if (known) {
      const bool fits = known->defined() && known->is_floating_point() && known->numel() > 0 && known->dim() > 1;
      return fits ? as_integers(*known, channel_dim) : std::nullopt;
    }
    const jit::Node* const less = as(value, kSub);
    if (less && constants_.number(less->input(2)) != 1.0) return {};
    const auto zero_points = less ? computed(less->input(1)) : at::zeros({1}, c10::kFloat);
    const jit::Node* const cast = less ? less->input(0)->node() : value->node();
    const auto type = cast->matches(kTo) ? constants_.get<at::ScalarType>(cast->input(1)) : std::nullopt;
    if (!zero_points || (type != c10::kFloat && type != c10::kDouble)) return {};
    const auto numbers = computed(cast->input(0));
    if (!numbers || !is_8_bit(numbers->scalar_type()) || numbers->dim() < 2 || numbers->numel() == 0) return {};
    const int64_t channels = numbers->size(channel_dim), after = numbers->dim() - 1 - channel_dim;
    const bool one_for_each = zero_points->dim() > after && zero_points->dim() <= numbers->dim() &&
                              zero_points->numel() == channels && zero_points->size(-1 - after) == channels;
    if (zero_points->numel() != 1 && !one_for_each) return {};
    return Weight{*numbers, zero_points->to(c10::kInt)};
  }

  // The numbers of 8 bits that the value holds in a floating type, maybe in another shape.
  jit::Value* as_8_bit(const jit::Value* value) const {
    const jit::Node* node = value->node();
    if (node->matches("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)")) node = node->input(0)->node();
    jit::Value* const of_float = cast_to(node, c10::kFloat);
    jit::Value* const of = of_float ? of_float : cast_to(node, c10::kDouble);
    return of && is_8_bit(type_of(of).value_or(c10::kFloat)) ? of : nullptr;
  }

  // Whether it is known to have one element.
  static bool is_single(const jit::Value* value) {
    return value->type()->expectRef<c10::TensorType>().numel() == size_t{1};
  }

  // What follows from constants alone.
  std::optional<at::Tensor> computed(const jit::Value* value) const {
    const auto known = computed_value(value);
    return known && known->isTensor() ? std::optional(known->toTensor()) : std::nullopt;
  }

  std::optional<c10::IValue> computed_value(const jit::Value* value) const {
    if (auto known = constants_(value)) return known;
    const jit::Node* const node = value->node();
    if (!node->kind().is_aten() || node->outputs().size() != 1) return {};
    jit::Stack stack;
    for (const jit::Value* input : node->inputs()) {
      auto known = computed_value(input);
      if (!known) return {};
      stack.push_back(*std::move(known));
    }
    node->getOperation()(stack);
    return stack.back();
  }

  c10::intrusive_ptr<Packed> packed(const Product& product) const {
    const jit::Node* const node = product.node;
    const auto& [numbers, zero_points] = product.weight;
    if (node->kind() == c10::aten::matmul)
      return numbers.dim() == 2 ? packed_integers(Linear{numbers, {}}, zero_points) : nullptr;
    const auto ints = [&](size_t i) { return constants_.get<std::vector<int64_t>>(node->input(i)); };
    const auto stride = ints(3), padding = ints(4), dilation = ints(5);
    const auto transposed = constants_.get<bool>(node->input(6));
    const auto groups = constants_.get<int64_t>(node->input(8));
    const bool fits = node->input(2)->mustBeNone() && stride && padding && dilation && groups &&
                      !transposed.value_or(true) && numbers.dim() >= 3 && numbers.dim() <= 5;
    return fits ? packed_integers(Convolution{numbers, {}, *stride, *padding, *dilation, *groups}, zero_points)
                : nullptr;
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
    if (computed(other)) return true;
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

void find_integer_products(Program& program) {
  find_dynamic_quantization(program);
  if (answer_numel(*program.graph)) fold(program);
  if (has_integer_products()) Recognition(program).run();
}

}  // namespace onnxtorch
