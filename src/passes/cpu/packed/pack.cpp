#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>
#include <unordered_set>
#include <variant>

#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/symbols.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/onednn/isa.h"
#include "kernels/cpu/onednn/operators.h"
#include "passes/cpu/chains.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;
using c10::Symbol;

const auto kPackedProduct = Symbol::fromQualString("onnx_torch::packed");
// An operator that is being packed, with the nodes that it takes up.
struct Candidate {
  jit::Value* x;
  std::variant<Convolution, Linear> main;
  jit::Node* last;  // the node that computes the result
  std::optional<Quantized> quantized = {};
  std::vector<PostOp> post_ops = {};
  std::vector<jit::Value*> operands = {};
  bool is_half = false;  // the weight lies in float16; such a product takes no steps
};

bool has_type(const at::Tensor& t, std::initializer_list<c10::ScalarType> types) {
  return t.defined() && t.numel() > 0 && std::ranges::find(types, t.scalar_type()) != types.end();
}

struct Weight {
  at::Tensor tensor, scales;  // the scales are undefined for a float one

  // Gives the type of a product with it.
  c10::ScalarType result() const { return scales.defined() ? c10::kFloat : tensor.scalar_type(); }
};

// Gives a constant weight of float32, bfloat16 or 8 bits.
std::optional<Weight> weight_of(const jit::Value* value, const Constants& constants) {
  const jit::Node* const node = value->node();
  if (node->kind() == kDequantizeAlong) {
    const auto numbers = constants.tensor(node->input(0)), scales = constants.tensor(node->input(1));
    return numbers && scales ? std::optional(Weight{*numbers, *scales}) : std::nullopt;
  }
  const auto weight = constants.tensor(value);
  const bool fits = weight && has_type(*weight, {c10::kFloat, c10::kBFloat16});
  return fits ? std::optional(Weight{*weight, {}}) : std::nullopt;
}

Quantization quantization(const jit::Node* node, c10::ScalarType type, const Constants& constants) {
  return {*constants.get<double>(node->input(1)), *constants.get<int64_t>(node->input(2)), 0, 0, type};
}

// Gives a candidate for the product of x and the weight; x is dequantized where the weight is of 8 bits.
std::optional<Candidate> candidate(jit::Value* x, std::variant<Convolution, Linear> main, const Weight& weight,
                                   jit::Node* node, const Constants& constants) {
  Candidate result{x, std::move(main), node};
  if (!weight.scales.defined()) return result;
  const jit::Node* const dequantize = x->node();
  const at::Tensor bias = std::visit([](const auto& of) { return of.bias; }, result.main);
  if (dequantize->kind() != kDequantize || (bias.defined() && !is_finite(bias))) return {};
  const auto type = type_of(dequantize->input(0));
  if (!type) return {};
  result.x = dequantize->input(0);
  result.quantized = Quantized{quantization(dequantize, *type, constants), weight.scales};
  return result;
}

bool is_bias(const at::Tensor& bias, int64_t channels) {
  return !bias.defined() || (bias.dim() == 1 && bias.size(0) == channels);
}

std::optional<Candidate> convolution(jit::Node* node, const Constants& constants) {
  if (!node->matches(kConvolution)) return {};
  const auto weight = weight_of(node->input(1), constants);
  const auto bias = constants.tensor(node->input(2));
  const auto stride = constants.get<std::vector<int64_t>>(node->input(3));
  const auto padding = constants.get<std::vector<int64_t>>(node->input(4));
  const auto dilation = constants.get<std::vector<int64_t>>(node->input(5));
  const auto transposed = constants.get<bool>(node->input(6));
  const auto groups = constants.get<int64_t>(node->input(8));
  if (!weight || !bias || !stride || !padding || !dilation || transposed.value_or(true) || !groups) return {};
  if (weight->tensor.dim() > 5 || !go_together(weight->tensor, *groups, {&*stride, &*padding, &*dilation})) return {};
  if (!is_bias(*bias, weight->tensor.size(0))) return {};
  return candidate(node->input(0),
                   Convolution{weight->tensor, *bias, *stride, *padding, *dilation, *groups, weight->result()}, *weight,
                   node, constants);
}

// Gives a transposed convolution of floats; its bias is left out.
std::optional<Deconvolution> deconvolution(jit::Node* node, const Constants& constants) {
  if (!node->matches(kConvolution) || !constants.get<bool>(node->input(6)).value_or(false)) return {};
  const auto weight = constants.tensor(node->input(1)), bias = constants.tensor(node->input(2));
  const auto stride = constants.get<std::vector<int64_t>>(node->input(3));
  const auto padding = constants.get<std::vector<int64_t>>(node->input(4));
  const auto dilation = constants.get<std::vector<int64_t>>(node->input(5));
  const auto output_padding = constants.get<std::vector<int64_t>>(node->input(7));
  const auto groups = constants.get<int64_t>(node->input(8));
  if (!weight || !has_type(*weight, {c10::kFloat}) || weight->dim() > 5) return {};
  if (!bias || (bias->defined() && !has_type(*bias, {c10::kFloat}))) return {};
  if (!stride || !padding || !dilation || !output_padding || !groups) return {};
  if (!go_together(*weight, *groups, {})) return {};  // a parameter may be one number for all dimensions
  if (!is_bias(*bias, weight->size(1) * *groups)) return {};
  return Deconvolution{*weight, *stride, *padding, *output_padding, *dilation, *groups};
}

std::optional<Candidate> linear(jit::Node* node, const Constants& constants) {
  if (node->matches(kAddmm)) {
    const auto bias = constants.tensor(node->input(0));
    const auto weight = weight_of(node->input(2), constants);
    const auto beta = constants.get<at::Scalar>(node->input(3)), alpha = constants.get<at::Scalar>(node->input(4));
    if (!weight || !bias || bias->dim() != 1 || bias->size(0) != weight->tensor.size(1)) return {};
    if (!beta || !alpha || beta->toDouble() != 1 || alpha->toDouble() != 1) return {};
    return candidate(node->input(1), Linear{weight->tensor, *bias, weight->result()}, *weight, node, constants);
  }
  if (node->kind() == c10::aten::linear) {
    const auto weight = weight_of(node->input(1), constants);
    const auto bias = constants.tensor(node->input(2));
    if (!weight || weight->scales.defined() || !bias || weight->tensor.dim() != 2) return {};
    if (bias->defined() && (bias->dim() != 1 || bias->size(0) != weight->tensor.size(0))) return {};
    return candidate(node->input(0), Linear{weight->tensor.t(), *bias, weight->result()}, *weight, node, constants);
  }
  if (node->kind() == c10::aten::matmul || node->kind() == c10::aten::mm) {
    const auto weight = weight_of(node->input(1), constants);
    if (!weight || weight->tensor.dim() != 2) return {};
    return candidate(node->input(0), Linear{weight->tensor, {}, weight->result()}, *weight, node, constants);
  }
  return {};
}

c10::ScalarType& result_type(Candidate& c) {
  return *std::visit([](auto& of) { return &of.result; }, c.main);
}

// Gives the only user of the value, if it is in the same block.
jit::Node* only_user(jit::Value* value) {
  if (value->uses().size() != 1) return nullptr;
  jit::Node* user = value->uses()[0].user;
  return user->owningBlock() == value->node()->owningBlock() && user->kind() != c10::prim::Return ? user : nullptr;
}

std::optional<PostOp> activation(const jit::Node* node, const Constants& constants) {
  const std::string name = node->kind().toUnqualString();
  if (node->kind().ns() != c10::namespaces::aten || !is_post_activation(name)) return {};
  PostOp step{PostOp::Kind::Activation, name};
  if (name == "gelu" && constants.get<std::string>(node->input(1)) == "tanh") step.activation = "gelu_tanh";
  if (name == "leaky_relu") {
    const auto slope = constants.get<at::Scalar>(node->input(1));
    if (!slope) return {};
    step.alpha = slope->toDouble();
  }
  if (name == "clamp") {
    const auto bound = [&](const jit::Value* value, double absent) {
      return value->mustBeNone() ? std::optional(absent) : constants.number(value);
    };
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const auto low = bound(node->input(1), -kInfinity), high = bound(node->input(2), kInfinity);
    if (!low || !high) return {};
    step.alpha = *low;
    step.beta = *high;
  }
  return step;
}

// Tells whether two values have the same sizes; nothing where these are not known.
std::optional<bool> same_sizes(const jit::Value* a, const jit::Value* b) {
  const auto sizes = [](const jit::Value* v) {
    return v->type()->expectRef<c10::TensorType>().sizes().concrete_sizes();
  };
  const auto first = sizes(a), second = sizes(b);
  return first && second ? std::optional(*first == *second) : std::nullopt;
}

// Gives `other`, which is added to the result, as the bias of a plain product; none where it is no bias.
std::optional<at::Tensor> as_bias(const Candidate& c, const jit::Value* other, const Constants& constants) {
  const auto* product = std::get_if<Linear>(&c.main);
  if (!product || product->bias.defined() || !c.post_ops.empty()) return {};
  const auto known = constants.tensor(other);
  const bool fits = known && has_type(*known, {c10::kFloat}) && known->dim() == 1 &&
                    known->size(0) == product->weight.size(1) && (!c.quantized || is_finite(*known));
  return fits ? known : std::nullopt;
}

// Gives the operand that is added to or multiplied by the result so far.
jit::Value* other_operand(const Candidate& c, const jit::Node* user) {
  jit::Value* const result = c.last->output();
  return user->input(0) == result ? user->input(1) : user->input(0);
}

bool adds_plainly(const jit::Node* node, const Constants& constants) {
  return node->matches(kAdd) && constants.number(node->input(2)) == 1.0;
}

// Takes up an addition that makes a bias.
bool take_bias(Candidate& c, jit::Node* user, const Constants& constants) {
  if (!adds_plainly(user, constants)) return false;
  const auto bias = as_bias(c, other_operand(c, user), constants);
  if (!bias) return false;
  std::get<Linear>(c.main).bias = *bias;
  return true;
}

// Takes up the addition of or multiplication by another tensor.
bool take_operand(Candidate& c, jit::Node* user, const Constants& constants) {
  const bool adds = adds_plainly(user, constants);
  if (!adds && !user->matches(kMul)) return false;
  jit::Value* const result = c.last->output();
  jit::Value* const other = other_operand(c, user);
  if (other == result) return false;
  if (c.quantized) return false;  // an operand may hold NaN
  // If sizes are not known, an addition is likely a residual one, a product likely a broadcast.
  if (!same_sizes(result, other).value_or(adds)) return false;
  c.post_ops.push_back({adds ? PostOp::Kind::Add : PostOp::Kind::Mul});
  c.operands.push_back(other);
  return true;
}

// Takes up the cast of the result to a type, if nothing else uses it.
void take_cast(Candidate& c, c10::ScalarType type, const Constants& constants) {
  jit::Node* const user = only_user(c.last->output());
  const bool is_cast = user && user->matches(kTo);
  if (!is_cast || constants.get<c10::ScalarType>(user->input(1)) != type) return;
  result_type(c) = type;
  c.last = user;
}

// Tells whether a result of float32 may be given in bfloat16, which the next product takes: the product itself is one of
// that type, and no step has an operand, which primitives describe as they do the result.
bool may_be_lowered(Candidate& c) {
  const auto weight = std::visit([](const auto& of) { return of.weight.scalar_type(); }, c.main);
  return weight == c10::kBFloat16 && result_type(c) == c10::kFloat && c.operands.empty();
}

// Tells whether a step is better left to a chain. A chain computes Silu and Sigmoid on its own in less time than oneDNN
// on the registers of a convolution, and Gelu wherever oneDNN's is no good one.
bool is_better_apart(const Candidate& c, const jit::Node* user) {
  static const bool is_good = onednn::has_good_gelu();
  if (c.quantized) return false;
  if (user->kind() == c10::aten::gelu) return !is_good;
  return std::holds_alternative<Convolution>(c.main) &&
         (user->kind() == c10::aten::silu || user->kind() == c10::aten::sigmoid) &&
         has_at_least(user->output(), kLeastAlone);
}

// Takes up the node that alone uses the result so far.
bool extend(Candidate& c, const Constants& constants) {
  jit::Node* const user = only_user(c.last->output());
  if (!user || !user->maybeOperator() || is_better_apart(c, user)) return false;
  if (auto step = c.is_half ? std::nullopt : activation(user, constants)) {
    c.post_ops.push_back(*std::move(step));
  } else if (!take_bias(c, user, constants) && (c.is_half || !take_operand(c, user, constants))) {
    return false;
  }
  c.last = user;
  return true;
}

// Takes up the quantization of the result.
void quantize_result(Candidate& c, const Constants& constants) {
  jit::Node* const user = c.quantized ? only_user(c.last->output()) : nullptr;
  if (!user || user->kind() != kQuantize) return;
  const auto type = static_cast<c10::ScalarType>(*constants.get<int64_t>(user->input(5)));
  Quantization result = quantization(user, type, constants);
  result.low = *constants.get<int64_t>(user->input(3));
  result.high = *constants.get<int64_t>(user->input(4));
  c.quantized->result = result;
  c.last = user;
}

class Packing {
 public:
  explicit Packing(Program& program) : program_(program), graph_(*program.graph), constants_(program) {}

  void run() {
    for_each_node(graph_.block(), [&](jit::Node* node) { pack(node); });
    eliminate_dead_code(program_.graph);
  }

 private:
  void pack(jit::Node* node) {
    if (const auto transposed = deconvolution(node, constants_)) return replace(*transposed, node);
    auto candidate = convolution(node, constants_);
    if (!candidate) candidate = linear(node, constants_);
    if (!candidate) return;
    if (result_type(*candidate) != c10::kFloat) take_cast(*candidate, c10::kFloat, constants_);
    const auto* const product = std::get_if<Linear>(&candidate->main);
    candidate->is_half = product && !candidate->quantized && lies_in_half(product->weight);
    while (result_type(*candidate) == c10::kFloat && extend(*candidate, constants_)) {
    }
    if (may_be_lowered(*candidate)) take_cast(*candidate, c10::kBFloat16, constants_);
    quantize_result(*candidate, constants_);
    replace(*candidate, node);
  }

  // Replaces a candidate's nodes, which are left without a use, by the packed one. An error in it is the main node's.
  void replace(const Candidate& c, const jit::Node* main) {
    auto operation = c.is_half ? packed_half(std::get<Linear>(c.main))
                               : std::visit(
                                     [&](const auto& of) {
                                       return c.quantized ? onnxtorch::packed(of, *c.quantized, c.post_ops)
                                                          : onnxtorch::packed(of, c.post_ops);
                                     },
                                     c.main);
    const jit::WithInsertPoint at(c.last);
    jit::Value* const result = inserted(c.x, operation, c.operands, main, c.last->output()->type());
    c.last->output()->replaceAllUsesWith(result);
  }

  void replace(const Deconvolution& d, jit::Node* node) {
    const jit::WithInsertPoint at(node);
    const auto& type = node->output()->type();
    jit::Value* result = inserted(node->input(0), onnxtorch::packed(d), {}, node, type);
    if (const at::Tensor bias = *constants_.tensor(node->input(2)); bias.defined()) {
      std::vector<int64_t> sizes(d.weight.dim() - 1, 1);
      sizes[0] = -1;
      result = graph_.insert(c10::aten::add, {result, bind_constant(program_, bias.reshape(sizes))});
      result->node()->setSourceRange(node->sourceRange());
      result->setType(type);
    }
    node->output()->replaceAllUsesWith(result);
  }

  jit::Value* inserted(jit::Value* x, const c10::intrusive_ptr<Packed>& operation, at::ArrayRef<jit::Value*> operands,
                       const jit::Node* main, const c10::TypePtr& type) {
    jit::Value* const list = graph_.insertNode(graph_.createList(c10::TensorType::get(), operands))->output();
    jit::Node* const node = graph_.create(kPackedProduct, {x, bind_constant(program_, IValue(operation)), list});
    node->setSourceRange(main->sourceRange());
    node->output()->setType(type);
    return graph_.insertNode(node)->output();
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
};

}  // namespace

void pack(Program& program) {
  register_onednn();
  Packing(program).run();
}

}  // namespace onnxtorch
