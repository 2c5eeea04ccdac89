#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>

#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/symbols.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "passes/general/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

constexpr auto kBatchNorm =
    "aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
    "bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor";

// A convolution or a product with a constant weight, whose results have their channels in one dimension.
struct WeightedNode {
  jit::Node* node;
  at::Tensor weight;  // the result's channels come first, except for a transposed convolution
  at::Tensor bias;    // may be undefined
  int64_t channels;
  std::optional<int64_t> rank;
  bool channels_last;
  int64_t transposed_groups = 0;  // the groups of a transposed convolution; 0 for others
  at::ScalarType type;

  // Gives a number for each channel, or one, as a factor of the weight.
  at::Tensor as_factor(const at::Tensor& each) const {
    std::vector<int64_t> sizes(weight.dim(), 1);
    if (each.dim() == 0) return each;
    if (transposed_groups == 0) {
      sizes[0] = channels;
      return each.reshape(sizes);
    }
    sizes[1] = channels / transposed_groups;
    const int64_t repeats = weight.size(0) / transposed_groups;
    sizes[0] = transposed_groups;
    return each.reshape(sizes).repeat_interleave(repeats, 0);
  }
};

// A step y = x * factor + addend, in each channel or in all.
struct Scale {
  at::Tensor factor, addend;
};

bool is_float(at::ScalarType type) { return type == c10::kFloat || type == c10::kDouble; }

// Multiplies some elements of a weight by doubles, rounded once. Strides are in elements, and may be known to the
// compiler. Tells whether all results are finite.
template <typename T>
bool multiply(T* result, const T* weight, const double* factor, auto to, auto from, auto next, int64_t count) {
  constexpr T kLargest = std::numeric_limits<T>::max();
  int finite = 1;
  for (int64_t i = 0; i < count; ++i) {
    const T element = static_cast<T>(weight[i * from] * factor[i * next]);
    finite &= static_cast<int>(std::abs(element) <= kLargest);
    result[i * to] = element;
  }
  return finite != 0;
}

// Multiplies a weight on the CPU, in one pass, as doubles of a whole weight take twice its memory.
template <typename T>
std::optional<at::Tensor> product_on_cpu(const at::Tensor& weight, const at::Tensor& factor) {
  at::Tensor result = at::empty_like(weight);
  at::TensorIterator elements = at::TensorIteratorConfig()
                                    .check_all_same_dtype(false)
                                    .add_output(result)
                                    .add_const_input(weight)
                                    .add_const_input(factor)
                                    .build();
  std::atomic<bool> finite = true;
  elements.for_each([&](char** data, const int64_t* strides, int64_t inner, int64_t outer) {
    constexpr auto kSize = static_cast<int64_t>(sizeof(T)), kDouble = static_cast<int64_t>(sizeof(double));
    const int64_t to = strides[0] / kSize, from = strides[1] / kSize, next = strides[2] / kDouble;
    constexpr std::integral_constant<int64_t, 1> kOne;
    constexpr std::integral_constant<int64_t, 0> kNone;
    for (int64_t i = 0; i < outer; ++i) {
      const auto at = [&](int which) { return data[which] + i * strides[3 + which]; };
      auto* const products = reinterpret_cast<T*>(at(0));
      const auto* const weights = reinterpret_cast<const T*>(at(1));
      const auto* const factors = reinterpret_cast<const double*>(at(2));
      const bool are_dense = to == 1 && from == 1 && next == 0;
      if (!(are_dense ? multiply(products, weights, factors, kOne, kOne, kNone, inner)
                      : multiply(products, weights, factors, to, from, next, inner)))
        finite = false;
    }
  });
  return finite ? std::optional(result) : std::nullopt;
}

// Gives the weight times doubles, rounded once; nothing where that is not finite.
std::optional<at::Tensor> product(const at::Tensor& weight, const at::Tensor& factor) {
  if (!weight.is_cpu()) {
    at::Tensor result = weight.to(c10::kDouble).mul(factor).to(weight.scalar_type());
    return is_finite(result) ? std::optional(std::move(result)) : std::nullopt;
  }
  return weight.scalar_type() == c10::kFloat ? product_on_cpu<float>(weight, factor)
                                             : product_on_cpu<double>(weight, factor);
}

class ScaleFolding {
 public:
  explicit ScaleFolding(Program& program)
      : program_(program), graph_(*program.graph), constants_(program), writers_(program.graph) {}

  void run() {
    for_each_node(graph_.block(), [&](jit::Node* node) {
      if (const auto product = product_of(node)) fold_into(*product);
    });
    eliminate_dead_code(program_.graph);
    for_each_node(graph_.block(), [&](jit::Node* node) {
      if (node->matches(kBatchNorm)) write_out(node);
    });
    eliminate_dead_code(program_.graph);
  }

 private:
  static std::optional<int64_t> rank_of(const jit::Value* value) {
    const auto rank = value->type()->expectRef<c10::TensorType>().sizes().size();
    return rank ? std::optional(static_cast<int64_t>(*rank)) : std::nullopt;
  }

  // Gives a constant of a floating type that has elements.
  std::optional<at::Tensor> numbers(const jit::Value* value, std::optional<int64_t> dim) const {
    const auto known = constants_.tensor(value);
    const bool fits = known && known->defined() && known->numel() > 0 && is_float(known->scalar_type()) &&
                      (!dim || known->dim() == *dim);
    return fits ? known : std::nullopt;
  }

  std::optional<WeightedNode> product_of(jit::Node* node) const {
    const bool convolves = node->matches(kConvolution), is_addmm = node->matches(kAddmm);
    const bool is_linear = node->kind() == c10::aten::linear;
    const bool multiplies = node->kind() == c10::aten::matmul || node->kind() == c10::aten::mm;
    if (!convolves && !is_addmm && !is_linear && !multiplies) return {};
    if (is_addmm && (constants_.number(node->input(3)) != 1.0 || constants_.number(node->input(4)) != 1.0)) return {};
    const auto weight = numbers(node->input(is_addmm ? 2 : 1), convolves ? std::nullopt : std::optional<int64_t>(2));
    const auto bias = multiplies ? at::Tensor() : constants_.tensor(node->input(is_addmm ? 0 : 2));
    if (!weight || !bias || writers_.has_writers(node)) return {};
    const at::ScalarType type = weight->scalar_type();
    WeightedNode result{node, *weight, *bias, weight->size(0), rank_of(node->output()), !convolves, 0, type};
    if (is_addmm || multiplies) {
      result.weight = weight->t();
      result.channels = weight->size(1);
    }
    if (convolves) {
      const auto transposed = constants_.get<bool>(node->input(6));
      const auto groups = constants_.get<int64_t>(node->input(8));
      if (!transposed || !groups || weight->dim() < 3) return {};
      result.rank = weight->dim();
      if (*transposed) {
        result.transposed_groups = *groups;
        result.channels = weight->size(1) * *groups;
      }
    }
    const bool fits =
        !bias->defined() || (bias->dim() == 1 && bias->size(0) == result.channels && bias->scalar_type() == type);
    return fits ? std::optional(result) : std::nullopt;
  }

  // Gives the operand as a number for each channel of the product, or one for all.
  std::optional<at::Tensor> each_channel(const WeightedNode& p, const jit::Value* value) const {
    if (!value->type()->isSubtypeOf(*c10::TensorType::get())) {
      const auto number = constants_.number(value);
      return number ? std::optional(at::scalar_tensor(*number, at::kDouble)) : std::nullopt;
    }
    const auto known = constants_.tensor(value);
    if (!known || !known->defined() || known->scalar_type() != p.type) return {};
    if (known->numel() == 1 && (known->dim() == 0 || (p.rank && known->dim() <= *p.rank)))
      return known->to(at::kDouble).reshape({});
    if (!p.rank || known->dim() > *p.rank || known->numel() != p.channels) return {};
    const int64_t from_end = p.channels_last ? 1 : *p.rank - 1;  // where the channels are
    if (known->dim() < from_end || known->size(-from_end) != p.channels) return {};
    return known->to(at::kDouble).reshape({-1});
  }

  // Gives what a batch normalization by constants does to each channel; none where it is not by constants alone.
  std::optional<Scale> batch_norm(const jit::Node* node) const {
    const auto training = constants_.get<bool>(node->input(5));
    const auto epsilon = constants_.number(node->input(7));
    std::vector<at::Tensor> each;
    for (size_t i = 1; i <= 4; ++i) {
      const auto known = constants_.tensor(node->input(i));
      if (!known || (known->defined() && (known->dim() != 1 || !is_float(known->scalar_type())))) return {};
      each.push_back(known->defined() ? known->to(at::kDouble) : at::Tensor());
    }
    if (training.value_or(true) || !epsilon || !each[2].defined() || !each[3].defined()) return {};
    at::Tensor factor = at::rsqrt(each[3] + *epsilon);
    if (each[0].defined()) factor = factor * each[0];
    const at::Tensor shift = each[2] * factor;
    return Scale{factor, each[1].defined() ? each[1] - shift : -shift};
  }

  // Gives what the node does to each channel of the value; none where it does anything else.
  std::optional<Scale> scale_of(const WeightedNode& p, const jit::Node* node, const jit::Value* value) const {
    if (node->matches(kBatchNorm)) {
      const bool along = !p.channels_last || p.rank == 2;
      auto scale = along && node->input(0) == value ? batch_norm(node) : std::nullopt;
      return scale && scale->factor.numel() == p.channels ? scale : std::nullopt;
    }
    const auto kind = node->kind();
    const bool adds = kind == c10::aten::add, subtracts = kind == c10::aten::sub;
    const bool multiplies = kind == c10::aten::mul, divides = kind == c10::aten::div && node->inputs().size() == 2;
    if ((!adds && !subtracts && !multiplies && !divides) || node->inputs().size() < 2) return {};
    const bool is_first = node->input(0) == value;
    if (node->input(0) == node->input(1) || (!is_first && divides)) return {};
    const auto other = each_channel(p, node->input(is_first ? 1 : 0));
    if (!other) return {};
    const at::Tensor one = at::ones({}, at::kDouble), zero = at::zeros({}, at::kDouble);
    if (multiplies) return Scale{*other, zero};
    if (divides) return Scale{1 / *other, zero};
    const auto alpha = constants_.number(node->input(2));
    if (!alpha) return {};
    if (adds) return is_first ? Scale{one, *other * *alpha} : Scale{one * *alpha, *other};
    return is_first ? Scale{one, *other * -*alpha} : Scale{one * -*alpha, *other};
  }

  static jit::Node* only_user(const jit::Value* value) {
    if (value->uses().size() != 1) return nullptr;
    jit::Node* const user = value->uses()[0].user;
    const bool plain = user->owningBlock() == value->node()->owningBlock() && user->kind() != c10::prim::Return;
    return plain && user->outputs().size() == 1 ? user : nullptr;
  }

  void fold_into(const WeightedNode& p) {
    jit::Node* last = p.node;
    at::Tensor factor = at::ones({}, at::kDouble), addend = at::zeros({}, at::kDouble);
    for (jit::Node* user = only_user(last->output()); user; user = only_user(last->output())) {
      const auto scale = scale_of(p, user, last->output());
      if (!scale || writers_.has_writers(user)) break;
      factor = factor * scale->factor;
      addend = addend * scale->factor + scale->addend;
      last = user;
    }
    // An addition of a bias alone is left to the product as it is.
    if (last == p.node || (p.channels_last && !p.bias.defined() && factor.dim() == 0 && factor.item<double>() == 1)) {
      return;
    }
    const auto weight = product(p.weight, p.as_factor(factor));
    at::Tensor bias = addend;
    if (p.bias.defined()) bias = bias + p.bias.to(at::kDouble) * factor;
    const bool has_bias = p.bias.defined() || bias.dim() > 0 || bias.item<double>() != 0;
    if (has_bias) bias = bias.expand({p.channels}).to(p.type).contiguous();
    // A weight or a bias that overflows would make other infinities.
    if (!weight || !is_finite(bias)) return;
    replace(p, *weight, has_bias ? bias : at::Tensor(), last);
  }

  void replace(const WeightedNode& p, const at::Tensor& weight, const at::Tensor& bias, jit::Node* last) {
    const jit::WithInsertPoint at(last);
    jit::Value* const bound_weight = bind_constant(program_, weight);
    jit::Value* const bound_bias =
        bias.defined() ? bind_constant(program_, bias) : graph_.insertConstant(c10::IValue());
    jit::Node* made = nullptr;
    if (p.channels_last) {
      jit::Value* const x = p.node->input(p.node->kind() == c10::aten::addmm ? 1 : 0);
      made = graph_.create(c10::aten::linear, {x, bound_weight, bound_bias});
    } else {
      made = graph_.createClone(p.node, [](jit::Value* value) { return value; });
      made->replaceInput(1, bound_weight);
      made->replaceInput(2, bound_bias);
    }
    graph_.insertNode(made);
    made->setSourceRange(p.node->sourceRange());
    made->output()->setType(last->output()->type());
    last->output()->replaceAllUsesWith(made->output());
  }

  // Replaces a normalization that follows no product by a product and a sum, which ATen makes of it as well.
  void write_out(jit::Node* node) {
    const auto rank = rank_of(node->input(0));
    const auto scale = batch_norm(node);
    if (!scale || !rank || *rank < 2 || type_of(node->input(0)) != c10::kFloat) return;
    std::vector<int64_t> sizes(*rank - 1, 1);
    sizes[0] = -1;
    const jit::WithInsertPoint at(node);
    const auto bound = [&](const at::Tensor& each) {
      return bind_constant(program_, each.to(c10::kFloat).reshape(sizes));
    };
    jit::Value* const product = graph_.insert(c10::aten::mul, {node->input(0), bound(scale->factor)});
    jit::Value* const sum = graph_.insert(c10::aten::add, {product, bound(scale->addend)});
    for (jit::Value* const value : {product, sum}) {
      value->node()->setSourceRange(node->sourceRange());
      value->setType(node->output()->type());
    }
    node->output()->replaceAllUsesWith(sum);
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
  const Writers writers_;
};

}  // namespace

void fold_scales(Program& program) {
  const c10::InferenceMode inference;
  ScaleFolding(program).run();
}

}  // namespace onnxtorch
