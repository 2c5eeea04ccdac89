#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cmath>
#include <limits>
#include <unordered_set>

#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/operator_traits.h"
#include "graph/symbols.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/onednn/operators.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/quantized/quantize.h"
#include "kernels/cpu/quantized/shifted_weight.h"
#include "passes/cpu/packed/integer_weight.h"
#include "passes/cpu/packed/nodes.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

const auto kMaxPool = Symbol::fromQualString("onnx_torch::max_pool");
const auto kLookUp = Symbol::fromQualString("onnx_torch::look_up");
const auto kQuantizedAdd = Symbol::fromQualString("onnx_torch::quantized_add");
const auto kQuantizedMul = Symbol::fromQualString("onnx_torch::quantized_mul");

// Gives all integers that a type of 8 bits has.
at::Tensor all_numbers(at::ScalarType type) {
  return type == c10::kByte ? at::arange(0, 256, c10::kByte) : at::arange(-128, 128, c10::kChar);
}

// An int8 or uint8 weight, with one scale for all or one for each index of the dimension that has the zero points.
struct ScaledWeight {
  IntegerWeight weight;
  at::Tensor scales;
};

class QuantizedRecognition {
 public:
  explicit QuantizedRecognition(Program& program) : program_(program), graph_(*program.graph), constants_(program) {}

  void run() {
    replace_each(graph_, [&](jit::Node* node) { return instead(node); });
    eliminate_dead_code(program_.graph);
  }

 private:
  jit::Value* instead(jit::Node* node) {
    if (note_constant(node)) return nullptr;
    source_ = node->sourceRange();
    pool_bytes(node);
    if (is_product(node)) return with_weight_of_bytes(node);
    return bytes_instead(node);
  }

  // Notes a node whose result follows from constants alone, so that it is computed once anyway. Tells whether it is
  // one.
  bool note_constant(const jit::Node* node) {
    if (!is_computed_of_inputs(node)) return false;
    for (const jit::Value* input : node->inputs()) {
      if (!is_constant(input)) return false;
    }
    return constant_.insert(node->output()).second;
  }

  bool is_constant(const jit::Value* value) const { return constant_.contains(value) || constants_(value); }

  jit::Value* bytes_instead(jit::Node* node) {
    if (node->outputs().size() != 1) return nullptr;
    if (node->kind() == kDequantizeLinear) return node->input(1)->mustBeNone() ? nullptr : dequantized(node);
    if (node->kind() == kQuantizeLinear) return quantized(node);
    if (jit::Value* const result = pooled(node)) return result;
    if (jit::Value* const result = picked(node)) return result;
    return moved(node);
  }

  // Gives the only element of a constant that adds no dimensions to x.
  std::optional<double> scalar_for(const jit::Value* value, const jit::Value* x) const {
    const auto type = value->type()->cast<c10::TensorType>();
    if (!type || type->numel().value_or(1) != 1) return {};
    const auto known = computed(value, constants_);
    if (!known || !known->defined() || known->numel() != 1) return {};
    const auto rank = x->type()->expectRef<c10::TensorType>().dim();
    if (known->dim() > 0 && (!rank || static_cast<int64_t>(*rank) < known->dim())) return {};
    return known->item<double>();
  }

  // Gives a zero point that a type of 8 bits has; zero where there is none.
  std::optional<int64_t> zero_point_for(const jit::Value* value, const jit::Value* x, at::ScalarType type) const {
    if (value->mustBeNone()) return 0;
    const auto known = scalar_for(value, x);
    return known && is_8_bit_number(*known, type) ? std::optional(static_cast<int64_t>(*known)) : std::nullopt;
  }

  // Gives a positive scale that is no subnormal number; one where there is none.
  std::optional<double> scale_for(const jit::Value* value, const jit::Value* x) const {
    if (value->mustBeNone()) return 1;
    if (type_of(value) != c10::kFloat) return {};
    const auto known = scalar_for(value, x);
    return known && std::isfinite(*known) && *known >= std::numeric_limits<float>::min() ? known : std::nullopt;
  }

  // Replaces a DequantizeLinear of int8 or uint8 that has one scale and zero point.
  jit::Value* dequantized(const jit::Node* node) {
    jit::Value* const x = node->input(0);
    const auto type = type_of(x);
    const auto scale = scale_for(node->input(1), x);
    if (!type || !is_8_bit(*type) || !scale) return nullptr;
    const auto zero_point = zero_point_for(node->input(2), x, *type);
    return zero_point ? insert(kDequantize, {x, *scale, *zero_point}, c10::kFloat) : nullptr;
  }

  // Inserts an operator, which stands for the node that is visited.
  jit::Value* insert(Symbol kind, at::ArrayRef<jit::NamedValue> arguments, at::ScalarType type) {
    jit::Value* const result = graph_.insert(kind, arguments, {}, source_);
    result->setType(c10::TensorType::get()->withScalarType(type));
    return result;
  }

  // Replaces a QuantizeLinear to int8 or uint8 that has one scale and zero point.
  jit::Value* quantized(const jit::Node* node) {
    jit::Value* const x = node->input(0);
    const auto type = constants_.get<at::ScalarType>(node->input(5));
    const auto low = constants_.get<int64_t>(node->input(3)), high = constants_.get<int64_t>(node->input(4));
    const auto scale = scale_for(node->input(1), x);
    if (!type || !is_8_bit(*type) || !low || !high || !scale) return nullptr;
    const auto zero_point = zero_point_for(node->input(2), x, *type);
    jit::Value* const given = node->input(1)->mustBeNone() ? in_steps(x->node()) : x;
    return zero_point && given ? quantize(given, *scale, *zero_point, *low, *high, *type) : nullptr;
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
            x, [&](const at::Tensor& y) { return onnxtorch::quantize(y, scale, zero_point, low, high, type); })) {
      return result;
    }
    // A value below zero becomes the zero point.
    if (const jit::Node* const relu = as(x, kRelu))
      return quantize(relu->input(0), scale, zero_point, std::max(low, zero_point), high, type);
    if (const auto operands = joined(x)) {
      std::vector<jit::NamedValue> arguments = operands->of_a;
      arguments.insert(arguments.end(), operands->of_b.begin(), operands->of_b.end());
      if (operands->kind == kQuantizedMul) arguments.emplace_back(operands->unit);
      arguments.emplace_back(operands->start);
      return insert(operands->kind, with(std::move(arguments)), type);
    }
    if (jit::Value* const result =
            joined_along(x, [&](jit::Value* part) { return quantize(part, scale, zero_point, low, high, type); })) {
      result->setType(type_like(x, type));
      return result;
    }
    // A node that only moves elements may as well come after.
    if (has(x->node(), Trait::Arranges) && x->uses().size() == 1) {
      jit::Value* const result = quantize(x->node()->input(0), scale, zero_point, low, high, type);
      take_sizes(result, x->node()->input(0));
      return move(x->node(), result);
    }
    return insert(kQuantize, with({x}), type);
  }

  // A sum or product of two tensors, of which one at least is dequantized.
  struct Joined {
    Symbol kind;
    std::vector<jit::NamedValue> of_a, of_b;  // numbers, scale and zero point
    double unit = 1, start = 0;
  };

  // Gives start + a + b, or a * b * unit + start, where nothing else needs what comes in between.
  std::optional<Joined> joined(jit::Value* x) const {
    if (auto product = product_of(x, 0)) return product;
    if (const auto [of, start] = less_constant(x, kAdd); of) {
      if (auto product = product_of(of, start)) return product;
    }
    const jit::Node* const sum = only(x, kAdd);
    if (!sum || constants_.number(sum->input(2)) != 1.0) return {};
    for (const size_t i : {0, 1}) {
      jit::Value *const a = sum->input(i), *const b = sum->input(1 - i);
      const auto [of, start] = less_constant(a, kAdd);
      if (of && is_dequantized(of) && is_dequantized(b))
        return Joined{kQuantizedAdd, operand(of), operand(b), 1, start};
    }
    return of_both(kQuantizedAdd, sum, 1, 0);
  }

  std::optional<Joined> product_of(jit::Value* x, double start) const {
    if (const auto [of, unit] = less_constant(x, kMul); of) {
      if (const jit::Node* const product = only(of, kMul)) return of_both(kQuantizedMul, product, unit, start);
    }
    const jit::Node* const product = only(x, kMul);
    return product ? of_both(kQuantizedMul, product, 1, start) : std::nullopt;
  }

  // Gives a sum or product whose first operand is the one that is dequantized.
  std::optional<Joined> of_both(Symbol kind, const jit::Node* node, double unit, double start) const {
    for (const size_t i : {0, 1}) {
      jit::Value *const a = node->input(i), *const b = node->input(1 - i);
      if (is_dequantized(a) && type_of(b).value_or(c10::kFloat) == c10::kFloat)
        return Joined{kind, operand(a), operand(b), unit, start};
    }
    return {};
  }

  static bool is_dequantized(const jit::Value* value) { return value->node()->kind() == kDequantize; }

  std::vector<jit::NamedValue> operand(jit::Value* value) const {
    if (!is_dequantized(value)) return {value, graph_.insertConstant(1.0), graph_.insertConstant(0)};
    return {value->node()->input(0), value->node()->input(1), value->node()->input(2)};
  }

  // Gives the node that computes the value, if it is this operator and nothing else needs the value.
  static const jit::Node* only(const jit::Value* value, const char* schema) {
    return value->uses().size() == 1 ? as(value, schema) : nullptr;
  }

  // Gives the operand of a sum or product of which the other operand is one number, and that number.
  std::pair<jit::Value*, double> less_constant(const jit::Value* value, const char* schema) const {
    const jit::Node* const node = only(value, schema);
    if (!node || (node->inputs().size() == 3 && constants_.number(node->input(2)) != 1.0)) return {};
    for (const size_t i : {0, 1}) {
      if (const auto number = scalar_for(node->input(i), node->input(1 - i))) return {node->input(1 - i), *number};
    }
    return {};
  }

  // Replaces x, if it concatenates dequantized tensors, by a concatenation of what each(tensor) gives for each of them.
  template <typename Each>
  jit::Value* joined_along(jit::Value* x, const Each& each) {
    const jit::Node* const joined = only(x, "aten::cat(Tensor[] tensors, int dim=0) -> Tensor");
    if (!joined || joined->input(0)->node()->kind() != c10::prim::ListConstruct) return nullptr;
    std::vector<jit::Value*> parts = joined->input(0)->node()->inputs().vec();
    if (!std::ranges::all_of(parts, is_dequantized)) return nullptr;
    for (jit::Value*& part : parts) {
      jit::Value* const numbers = each(part);
      take_sizes(numbers, part);
      part = numbers;
    }
    jit::Value* const list = graph_.insertNode(graph_.createList(c10::TensorType::get(), parts))->output();
    return graph_.insert(c10::aten::cat, {list, joined->input(1)}, {}, source_);
  }

  // Replaces x, if it is computed element by element from one dequantized tensor, by a look-up: a table says what
  // becomes of each integer.
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

  // Computes the value for each integer of 8 bits that may come.
  std::optional<at::Tensor> compute(jit::Value* value, const jit::Value*& origin, int depth) {
    constexpr int kDeepest = 16;
    jit::Node* const node = value->node();
    if (node->kind() == kDequantize) {
      if (origin && origin != value) return {};
      origin = value;
      const auto type = type_of(node->input(0));
      if (!type) return {};
      return onnxtorch::dequantize(all_numbers(*type), *constants_.number(node->input(1)),
                                   *constants_.get<int64_t>(node->input(2)));
    }
    if (depth == kDeepest || !has(node, Trait::Unary, Trait::Binary, Trait::Ternary)) return {};
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

  // Inserts the node's movement for another tensor's elements.
  jit::Value* move(jit::Node* node, jit::Value* of) {
    jit::Node* const same = graph_.createClone(node, [](jit::Value* value) { return value; });
    same->replaceInput(0, of);
    same->setSourceRange(node->sourceRange());
    graph_.insertNode(same);
    same->output()->setType(type_like(node->output(), type_of(of)));
    return same->output();
  }

  // Tells whether a node pads with zeros.
  bool is_padding(const jit::Node* node) const {
    return node->matches(kPad) && constants_.number(node->input(2)) == 0.0;
  }

  // Moves a dequantized tensor's elements, or puts zeros around them, by doing the same with its integers.
  jit::Value* moved(jit::Node* node) {
    const bool pads = is_padding(node);
    if (!pads && !has(node, Trait::Arranges)) return nullptr;
    const jit::Node* const of = node->input(0)->node();
    if (of->kind() != kDequantize) return nullptr;
    jit::Value* const result = move(node, of->input(0));
    if (pads) result->node()->replaceInput(2, of->input(2));  // the zero point is what zero stands for
    return insert(kDequantize, {result, of->input(1), of->input(2)}, c10::kFloat);
  }

  // Picks rows of a dequantized table, as of words, from its integers, so that no wider table is made.
  jit::Value* picked(jit::Node* node) {
    if (node->kind() != kGather && node->kind() != c10::aten::index_select) return nullptr;
    const jit::Node* const given = as(node->input(0), kDequantizeLinear);
    const jit::Value* const table = given && constant_.contains(given->output()) ? dequantized(given) : nullptr;
    if (!table) return nullptr;
    const jit::Node* const of = table->node();
    return insert(kDequantize, {move(node, of->input(0)), of->input(1), of->input(2)}, c10::kFloat);
  }

  // --- Pooling ---

  // Inserts the pooling that the node does, of int8 or uint8.
  jit::Value* max_pool(const jit::Node* node, jit::Value* of) {
    jit::Value* const result = insert(
        kMaxPool, {of, node->input(1), node->input(2), node->input(3), node->input(4), node->input(5)}, *type_of(of));
    take_sizes(result, node->output(0));
    return result;
  }

  // Pools a dequantized tensor's integers: the largest of what they stand for is what the largest of them stands for.
  jit::Value* pooled(const jit::Node* node) {
    const bool fits = node->matches(
        "aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, "
        "bool ceil_mode=False) -> Tensor");
    const jit::Node* const of = fits ? node->input(0)->node() : nullptr;
    if (!of || of->kind() != kDequantize) return nullptr;
    return insert(kDequantize, {max_pool(node, of->input(0)), of->input(1), of->input(2)}, c10::kFloat);
  }

  void pool_bytes(const jit::Node* node) {
    if (node->kind() != c10::aten::max_pool2d_with_indices || node->output(1)->hasUses()) return;
    jit::Value* x = node->input(0);
    if (!is_8_bit(type_of(x).value_or(c10::kFloat))) return;
    if (const jit::Node* const arranged =
            as(x, "aten::contiguous(Tensor(a) self, *, MemoryFormat memory_format=contiguous_format) -> Tensor(a)")) {
      x = arranged->input(0);
      if (!is_8_bit(type_of(x).value_or(c10::kFloat))) return;
    }
    node->output(0)->replaceAllUsesWith(max_pool(node, x));
  }

  // --- Products ---

  static bool is_product(const jit::Node* node) {
    return node->kind() == c10::aten::convolution || node->kind() == c10::aten::addmm ||
           node->kind() == c10::aten::matmul || node->kind() == c10::aten::mm;
  }

  // Gives the dimension of a product's weight that its result has, too.
  static int64_t channel_dim(const jit::Node* product) { return is_convolution(product) ? 0 : 1; }

  // Gives a product of a dequantized tensor its weight in 8 bits, too, or replaces it by one that takes it so.
  jit::Value* with_weight_of_bytes(jit::Node* node) {
    const size_t x = node->kind() == c10::aten::addmm ? 1 : 0;
    if (node->input(x)->node()->kind() != kDequantize) return nullptr;
    const auto given = scaled_weight(node->input(x + 1), channel_dim(node));
    if (!given || !fits(node, given->weight.numbers)) return nullptr;
    const ShiftedWeight shifted(given->weight.numbers, given->weight.zero_points, channel_dim(node));
    if (!shifted.has_shifts()) {
      jit::Value* const weight = dequantized_weight(node, shifted.numbers(), given->scales);
      weight->setType(node->input(x + 1)->type());
      node->replaceInput(x + 1, weight);
      return nullptr;
    }
    const jit::Node* const of = node->input(x)->node();
    const auto bias = bias_of(node);
    if (!bias) return nullptr;
    const at::Tensor unit = at::mul(given->scales, *constants_.number(of->input(1)));
    return scaled_product(node, of->input(0), *constants_.get<int64_t>(of->input(2)), given->weight, unit, *bias);
  }

  static bool fits(const jit::Node* product, const at::Tensor& weight) {
    return is_convolution(product) ? weight.dim() >= 3 && weight.dim() <= 5 : weight.dim() == 2;
  }

  // Inserts the dequantization of an int8 weight.
  jit::Value* dequantized_weight(const jit::Node* product, const at::Tensor& numbers, const at::Tensor& scales) {
    return insert(kDequantizeAlong,
                  {bind_constant(program_, numbers), bind_constant(program_, scales.reshape(-1)), channel_dim(product)},
                  c10::kFloat);
  }

  // Gives a product's bias: undefined where it has none, nothing where it is not constant.
  std::optional<at::Tensor> bias_of(const jit::Node* product) const {
    if (is_convolution(product)) {
      const jit::Value* const bias = product->namedInput("bias");
      return bias->mustBeNone() ? at::Tensor() : computed(bias, constants_);
    }
    if (product->kind() != c10::aten::addmm) return at::Tensor();
    const bool plain = constants_.number(product->input(3)) == 1.0 && constants_.number(product->input(4)) == 1.0;
    return plain ? computed(product->input(0), constants_) : std::nullopt;
  }

  // Inserts (product of x - zero_point and the weight) * unit + bias, with sums in int32; null where there is no such
  // operator.
  jit::Value* scaled_product(const jit::Node* product, jit::Value* x, int64_t zero_point, const IntegerWeight& weight,
                             const at::Tensor& unit, const at::Tensor& bias) {
    const auto operation = packed_integers(product, weight, constants_);
    if (!operation) return nullptr;
    std::vector<int64_t> shape(is_convolution(product) ? weight.numbers.dim() - 1 : 1, 1);
    shape[0] = -1;
    const auto constant = [&](c10::IValue value) { return bind_constant(program_, std::move(value)); };
    std::vector<jit::Value*> addends;
    if (bias.defined()) addends.push_back(constant(bias.to(c10::kFloat).reshape(shape)));
    jit::Value* const list = graph_.insertNode(graph_.createList(c10::TensorType::get(), addends))->output();
    jit::Value* const result = insert(kScaledIntegerProduct,
                                      {x, constant(operation), constant(at::scalar_tensor(zero_point, *type_of(x))),
                                       constant(unit.to(c10::kFloat).reshape(shape)), list, false},
                                      c10::kFloat);
    take_sizes(result, product->output());
    return result;
  }

  // Gives what QLinearConv or QLinearMatMul rounds as a product of what is dequantized with a scale of 1; null where
  // the weight or the unit of the sums comes with the run.
  jit::Value* in_steps(const jit::Node* product) {
    const bool convolves = product->kind() == kQLinearConv;
    const auto type = type_of(product->input(0));
    if ((!convolves && product->kind() != kQLinearMatMul) || !type || !is_8_bit(*type)) return nullptr;
    const auto zero_point = zero_point_for(product->input(2), product->input(0), *type);
    const auto unit = constants_.tensor(product->namedInput("unit")), bias = bias_of(product);
    const auto weight = weight_of_product(product, constants_);
    if (!zero_point || !unit || !unit->defined() || unit->scalar_type() != c10::kFloat || !is_finite(*unit))
      return nullptr;
    if (!bias || !weight || !fits(product, weight->numbers)) return nullptr;
    const int64_t channels = weight->numbers.size(channel_dim(product)), dims = weight->numbers.dim();
    if (!is_along(*unit, 1, channels, dims)) return nullptr;
    const at::Tensor scales = unit->reshape(-1);
    const at::Tensor addend = bias->defined() ? at::mul(bias->to(c10::kDouble), scales).to(c10::kFloat) : at::Tensor();
    jit::Value* const numbers = padded_images(graph_, product, *zero_point, constants_);
    const ShiftedWeight shifted(weight->numbers, weight->zero_points, channel_dim(product));
    if (shifted.has_shifts()) return scaled_product(product, numbers, *zero_point, *weight, scales, addend);
    jit::Value* const x = insert(kDequantize, {numbers, 1.0, *zero_point}, c10::kFloat);
    take_sizes(x, numbers);
    jit::Value* const w = dequantized_weight(product, shifted.numbers(), scales);
    jit::Value* const result =
        convolves ? convolution(product, x, w, addend) : graph_.insert(c10::aten::matmul, {x, w}, {}, source_);
    result->setType(type_like(product->output(), c10::kFloat));
    return result;
  }

  // Inserts the convolution that a QLinearConv does.
  jit::Value* convolution(const jit::Node* of, jit::Value* x, jit::Value* w, const at::Tensor& bias) {
    const auto same = [&](const char* name) { return jit::NamedValue(of->namedInput(name)); };
    jit::Value* const addend = bias.defined() ? bind_constant(program_, bias) : graph_.insertConstant(c10::IValue());
    return graph_.insert(c10::aten::convolution,
                         {x, w, addend, same("stride"), same("padding"), same("dilation"), false,
                          std::vector<int64_t>{0}, same("groups")},
                         {}, source_);
  }

  // Finds the weight of a value that is float(integers less zero points) * scales.
  std::optional<ScaledWeight> scaled_weight(const jit::Value* value, int64_t axis) const {
    if (const jit::Node* const transposed = as(value, kTransposeMatrix)) {
      auto found = scaled_weight(transposed->input(0), 1 - axis);
      if (!found || found->weight.numbers.dim() != 2) return {};
      return ScaledWeight{{found->weight.numbers.t(), found->weight.zero_points}, found->scales};
    }
    const jit::Node* const given = as(value, kDequantizeLinear);
    const auto scales = given ? constants_.tensor(given->input(1)) : std::nullopt;
    if (!scales || !scales->defined() || scales->scalar_type() != c10::kFloat) return {};
    const auto weight = weight_of(given->input(0), given->input(2), axis, constants_);
    if (!weight || !is_along(*scales, axis, weight->numbers.size(axis), weight->numbers.dim())) return {};
    if (!is_finite(*scales)) return {};
    return ScaledWeight{*weight, scales->reshape(-1)};
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
  std::unordered_set<const jit::Value*> constant_;
  jit::SourceRange source_;
};

// Tells whether a program may have values of int8 or uint8.
bool has_bytes(const Program& program) {
  const auto is_of_bytes = [](const jit::Value* value) { return is_8_bit(type_of(value).value_or(c10::kFloat)); };
  bool found = std::ranges::any_of(program.graph->inputs(), is_of_bytes);
  for_each_node(program.graph->block(), [&](const jit::Node* node) {
    found |= node->kind() == kQuantizeLinear || node->kind() == kDequantizeLinear ||
             node->kind() == kDynamicQuantizeLinear || std::ranges::any_of(node->outputs(), is_of_bytes);
  });
  return found;
}

}  // namespace

void find_quantized(Program& program) {
  const c10::InferenceMode inference;
  register_onednn();
  register_pools();
  if (!has_bytes(program)) return;
  find_integer_products(program);
  QuantizedRecognition(program).run();
}

}  // namespace onnxtorch
