#include "lower/chain/chains.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "import/element_type.h"
#include "lower/chain/chain.h"
#include "passes/constants.h"
#include "passes/known_type.h"
#include "translate/writes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using chain::Op;

constexpr size_t kMostNodes = 400;

enum class Kind : uint8_t { Float, Mask };

// An operator that a chain can compute. Its operands are the node's first inputs; what else there is are numbers.
struct Element {
  Op op;
  std::vector<Kind> operands;
  Kind result = Kind::Float;
  float a = 0, b = 0;
};

std::string name_of(const jit::Node* node) { return c10::toString(node->schema().operator_name()); }

const std::unordered_map<std::string, Op>& unary_operators() {
  static const std::unordered_map<std::string, Op> operators = {
      {"aten::abs", Op::Abs},
      {"aten::neg", Op::Neg},
      {"aten::exp", Op::Exp},
      {"aten::expm1", Op::Expm1},
      {"aten::log", Op::Log},
      {"aten::log1p", Op::Log1p},
      {"aten::sqrt", Op::Sqrt},
      {"aten::rsqrt", Op::Rsqrt},
      {"aten::reciprocal", Op::Reciprocal},
      {"aten::sigmoid", Op::Sigmoid},
      {"aten::tanh", Op::Tanh},
      {"aten::sin", Op::Sin},
      {"aten::cos", Op::Cos},
      {"aten::tan", Op::Tan},
      {"aten::asin", Op::Asin},
      {"aten::acos", Op::Acos},
      {"aten::atan", Op::Atan},
      {"aten::relu", Op::Relu},
      {"aten::silu", Op::Silu},
      {"aten::hardsigmoid", Op::HardSigmoid},
      {"aten::hardswish", Op::HardSwish},
      {"aten::floor", Op::Floor},
      {"aten::ceil", Op::Ceil},
      {"aten::round", Op::Round},
      {"aten::trunc", Op::Trunc},
      {"aten::sign", Op::Sign},
      {"aten::square", Op::Square},
  };
  return operators;
}

const std::unordered_map<std::string, Op>& binary_operators() {
  static const std::unordered_map<std::string, Op> operators = {
      {"aten::add.Tensor", Op::Add},  {"aten::add.Scalar", Op::Add}, {"aten::sub.Tensor", Op::Sub},
      {"aten::sub.Scalar", Op::Sub},  {"aten::mul.Tensor", Op::Mul}, {"aten::mul.Scalar", Op::Mul},
      {"aten::div.Tensor", Op::Div},  {"aten::div.Scalar", Op::Div}, {"aten::maximum", Op::Maximum},
      {"aten::minimum", Op::Minimum}, {"aten::eq.Tensor", Op::Eq},   {"aten::eq.Scalar", Op::Eq},
      {"aten::ne.Tensor", Op::Ne},    {"aten::ne.Scalar", Op::Ne},   {"aten::lt.Tensor", Op::Lt},
      {"aten::lt.Scalar", Op::Lt},    {"aten::le.Tensor", Op::Le},   {"aten::le.Scalar", Op::Le},
      {"aten::gt.Tensor", Op::Gt},    {"aten::gt.Scalar", Op::Gt},   {"aten::ge.Tensor", Op::Ge},
      {"aten::ge.Scalar", Op::Ge},
  };
  return operators;
}

const std::unordered_map<std::string, Op>& mask_operators() {
  static const std::unordered_map<std::string, Op> operators = {
      {"aten::logical_not", Op::LogicalNot},      {"aten::logical_and", Op::LogicalAnd},
      {"aten::logical_or", Op::LogicalOr},        {"aten::logical_xor", Op::LogicalXor},
      {"aten::bitwise_not", Op::LogicalNot},      {"aten::bitwise_and.Tensor", Op::LogicalAnd},
      {"aten::bitwise_or.Tensor", Op::LogicalOr}, {"aten::bitwise_xor.Tensor", Op::LogicalXor},
  };
  return operators;
}

bool is_comparison(Op op) { return op >= Op::Eq && op <= Op::Ge; }

// What a chain may end in. Where no dimensions are given, all are reduced.
const std::unordered_map<std::string, ChainProgram::Reduction>& reductions() {
  using chain::Reducer;
  static const std::unordered_map<std::string, ChainProgram::Reduction> operators = {
      {"aten::sum.dim_IntList", {Reducer::Sum}},
      {"aten::mean.dim", {Reducer::Sum, /*is_mean=*/true}},
      {"aten::amax", {Reducer::Maximum}},
      {"aten::amin", {Reducer::Minimum}},
  };
  return operators;
}

// The operators of a graph that chains can compute, and the types of values as far as they are known.
class Elements {
 public:
  Elements(const Program& program, const Constants& constants, const jit::AliasDb& aliases)
      : constants_(constants), aliases_(aliases) {
    for (size_t i = 0; i < program.graph_inputs.size(); ++i) {
      const GraphInput& input = program.graph_inputs[i];
      if (input.role != GraphInput::Role::Input) continue;
      if (const ValueType& type = program.inputs[input.index].type; type.kind == ValueType::Kind::Tensor)
        types_[program.graph->inputs()[i]] = storage_dtype(type.element);
    }
    find(program.graph->block());
  }

  const Element* operator()(const jit::Node* node) const {
    const auto found = elements_.find(node);
    return found == elements_.end() ? nullptr : &found->second;
  }

  const ChainProgram::Reduction* reduction(const jit::Node* node) const {
    const auto found = reductions_.find(node);
    return found == reductions_.end() ? nullptr : &found->second;
  }

 private:
  void find(jit::Block* block) {
    for (jit::Node* node : block->nodes()) {
      if (node->kind() == c10::prim::Loop) expect_types(node);
      for (jit::Block* inner : node->blocks()) find(inner);
      if (node->outputs().size() != 1) continue;
      if (auto element = chainable(node)) {
        types_[node->output()] = scalar_type(element->result);
        elements_.emplace(node, *std::move(element));
      } else if (auto reduction = reduction_of(node)) {
        types_[node->output()] = c10::kFloat;
        reductions_.emplace(node, *std::move(reduction));
      } else if (keeps_type(node)) {
        if (const auto type = type_of(node->input(0))) types_[node->output()] = *type;
      }
    }
  }

  // What a loop carries most likely stays of the type that it starts with.
  void expect_types(const jit::Node* loop) {
    constexpr size_t kFirst = 2;  // after the number of iterations and the condition
    const auto inside = loop->blocks()[0]->inputs().slice(1);
    for (size_t i = 0; i < inside.size(); ++i) {
      if (const auto type = type_of(loop->input(kFirst + i))) types_[inside[i]] = *type;
    }
  }

  static c10::ScalarType scalar_type(Kind kind) { return kind == Kind::Mask ? c10::kBool : c10::kFloat; }

  std::optional<c10::ScalarType> type_of(const jit::Value* value) const {
    if (const auto type = value->type()->cast<c10::TensorType>(); type && type->scalarType()) return type->scalarType();
    const auto found = types_.find(value);
    return found == types_.end() ? std::nullopt : std::optional(found->second);
  }

  // Whether the result is of the first operand's type.
  static bool keeps_type(const jit::Node* node) {
    static const std::unordered_set<std::string> names = {
        "aten::reshape",
        "aten::permute",
        "aten::transpose",
        "aten::t",
        "aten::unsqueeze",
        "aten::squeeze",
        "aten::select",
        "aten::slice",
        "aten::expand",
        "aten::expand_copy",
        "aten::flatten",
        "aten::index_select",
        "aten::gather",
        "aten::index",
        "aten::amax",
        "aten::amin",
        "aten::matmul",
        "onnx_torch::layer_norm",
        "onnx_torch::rms_norm",
        "onnx_torch::softmax",
        "onnx_torch::reshape",
        "aten::mm",
        "aten::convolution",
        "aten::clone",
        "aten::contiguous",
        "aten::instance_norm",
        "onnx_torch::group_norm",
        "onnx_torch::packed",
        "onnx_torch::matmul",
        "onnx_torch::attention",
    };
    return names.contains(node->kind().toQualString());
  }

  // Whether the operands are of their kinds, as far as is known: where a run shows that they are not, ATen computes the
  // chain.
  std::optional<Element> chainable(jit::Node* node) const {
    auto element = element_of(node);
    if (!element || aliases_.hasWriters(node)) return {};
    const auto type = type_of(node->output());
    if (type && type != scalar_type(element->result)) return {};
    bool known = type == c10::kFloat;
    for (size_t i = 0; i < element->operands.size(); ++i) {
      const jit::Value* const operand = node->input(i);
      const bool is_mask = element->operands[i] == Kind::Mask;
      if (!operand->type()->isSubtypeOf(*c10::TensorType::get())) {
        if (is_mask || !constants_.number(operand)) return {};
        continue;
      }
      const auto given = type_of(operand);
      if (given ? given != scalar_type(element->operands[i]) : is_mask) return {};
      known = known || given;
    }
    for (const jit::Value* number : node->inputs().slice(element->operands.size())) {
      if (!constants_(number)) return {};
    }
    return known ? element : std::nullopt;
  }

  std::optional<ChainProgram::Reduction> reduction_of(jit::Node* node) const;
  std::optional<Element> element_of(jit::Node* node) const;
  std::optional<Element> power(jit::Node* node) const;
  std::optional<Element> clamp(jit::Node* node) const;
  std::optional<Element> cast(jit::Node* node) const;

  const Constants& constants_;
  const jit::AliasDb& aliases_;
  std::unordered_map<const jit::Value*, c10::ScalarType> types_;
  std::unordered_map<const jit::Node*, Element> elements_;
  std::unordered_map<const jit::Node*, ChainProgram::Reduction> reductions_;  // of what elements give
};

std::optional<ChainProgram::Reduction> Elements::reduction_of(jit::Node* node) const {
  if (!node->kind().is_aten() || !node->maybeOperator()) return {};
  const auto found = reductions().find(name_of(node));
  if (found == reductions().end()) return {};
  const Element* const reduced = (*this)(node->input(0)->node());
  const auto dims = constants_(node->input(1));
  const auto keepdim = constants_.get<bool>(node->input(2));
  constexpr size_t kDtype = 3;
  const bool keeps_dtype = node->inputs().size() <= kDtype || node->input(kDtype)->mustBeNone();
  if (!reduced || reduced->result != Kind::Float || !dims || !keepdim || !keeps_dtype || aliases_.hasWriters(node))
    return {};
  ChainProgram::Reduction reduction = found->second;
  if (dims->isIntList()) reduction.dims = dims->toIntVector();
  reduction.keepdim = *keepdim;
  return dims->isIntList() || dims->isNone() ? std::optional(reduction) : std::nullopt;
}

// ATen computes some powers without a logarithm; Tensor exponents only where that gives the same.
std::optional<Element> Elements::power(jit::Node* node) const {
  const bool by_scalar = name_of(node) == "aten::pow.Tensor_Scalar";
  const auto exponent = constants_.number(node->input(1));
  const auto plain = [&](Op op) { return Element{op, {Kind::Float}}; };
  if (exponent == 2.0) return plain(Op::Square);
  if (exponent == 3.0) return plain(Op::Cube);
  if (by_scalar && exponent == 0.5) return plain(Op::Sqrt);
  if (by_scalar && exponent == -0.5) return plain(Op::Rsqrt);
  if (exponent == -1.0) return plain(Op::Reciprocal);
  if (by_scalar && (exponent == 0.0 || exponent == 1.0 || exponent == -2.0)) return {};
  return Element{Op::Pow, {Kind::Float, Kind::Float}};
}

std::optional<Element> Elements::clamp(jit::Node* node) const {
  const auto bound = [&](size_t i) { return constants_.number(node->input(i)); };
  const bool has_low = !node->input(1)->mustBeNone(), has_high = !node->input(2)->mustBeNone();
  const auto low = bound(1), high = bound(2);
  // A bound of NaN makes everything NaN.
  if ((has_low && (!low || std::isnan(*low))) || (has_high && (!high || std::isnan(*high)))) return {};
  Element element{Op::Clamp, {Kind::Float}};
  if (!has_high) element.op = Op::ClampMin;
  if (!has_low) element.op = Op::ClampMax;
  element.a = static_cast<float>(has_low ? *low : *high);
  element.b = has_high ? static_cast<float>(*high) : 0.0F;
  return element;
}

// A cast between floats and masks.
std::optional<Element> Elements::cast(jit::Node* node) const {
  const auto from = type_of(node->input(0));
  const auto to = constants_.get<int64_t>(node->input(1));
  if (!from || !to) return {};
  constexpr auto number = [](c10::ScalarType type) { return static_cast<int64_t>(type); };
  if (from == c10::kBool && *to == number(c10::kFloat)) return Element{Op::ToFloat, {Kind::Mask}};
  if (from == c10::kFloat && *to == number(c10::kBool)) return Element{Op::ToBool, {Kind::Float}, Kind::Mask};
  return {};
}

// What the node computes, as far as its operator and its numbers tell.
std::optional<Element> Elements::element_of(jit::Node* node) const {
  if (!node->kind().is_aten() || node->outputs().size() != 1 || !node->maybeOperator()) return {};
  const std::string name = name_of(node);
  const auto floats = [](Op op, size_t count) { return Element{op, std::vector(count, Kind::Float)}; };
  if (const auto found = unary_operators().find(name); found != unary_operators().end())
    return floats(found->second, 1);
  if (const auto found = binary_operators().find(name); found != binary_operators().end()) {
    if (node->inputs().size() > 2 && constants_.number(node->input(2)) != 1.0) return {};
    Element element = floats(found->second, 2);
    if (is_comparison(found->second)) element.result = Kind::Mask;
    return element;
  }
  if (const auto found = mask_operators().find(name); found != mask_operators().end()) {
    return Element{found->second, std::vector(node->inputs().size(), Kind::Mask), Kind::Mask};
  }
  if (name == "aten::isnan") {
    Element element = floats(Op::IsNan, 1);
    element.result = Kind::Mask;
    return element;
  }
  if (name == "aten::where.self") return Element{Op::Where, {Kind::Mask, Kind::Float, Kind::Float}};
  if (name == "aten::gelu") {
    const auto approximate = constants_.get<std::string>(node->input(1));
    if (!approximate) return {};
    return floats(*approximate == "tanh" ? Op::GeluTanh : Op::Gelu, 1);
  }
  if (name == "aten::leaky_relu") {
    const auto slope = constants_.number(node->input(1));
    if (!slope) return {};
    Element element = floats(Op::LeakyRelu, 1);
    element.a = static_cast<float>(*slope);
    return element;
  }
  if (name == "aten::pow.Tensor_Scalar" || name == "aten::pow.Tensor_Tensor") return power(node);
  if (name == "aten::clamp") return clamp(node);
  if (name == "aten::to.dtype") return cast(node);
  return {};
}

// The chains of one block. A unit is a chain, or a node that is in none; it is named by the number of one of its nodes.
class Block {
 public:
  Block(Program& program, jit::Block* block, const Constants& constants, const jit::AliasDb& aliases,
        const Elements& elements)
      : program_(program), block_(block), constants_(constants), aliases_(aliases) {
    for (jit::Node* node : block->nodes()) {
      numbers_[node] = nodes_.size();
      nodes_.push_back(node);
    }
    for (const jit::Node* node : nodes_) {
      elements_.push_back(elements(node));
      reductions_.push_back(elements.reduction(node));
    }
    parent_.resize(nodes_.size());
    std::iota(parent_.begin(), parent_.end(), 0);
    for (size_t i = 0; i < nodes_.size(); ++i) members_.push_back({i});
    find_needs();
  }

  void run() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!elements_[i]) continue;
      for (const jit::Value* operand : operands(i)) {
        if (const auto from = number_of(operand); from && elements_[*from]) join(*from, i);
      }
    }
    // At last, so that element-wise operators are joined as if there were none. What a chain reduces it does not read.
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!reductions_[i]) continue;
      if (const auto from = number_of(nodes_[i]->input(0))) join(*from, i);
    }
    if (std::ranges::none_of(members_, [&](const auto& members) { return is_chain(members); })) return;
    sort();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (unit(i) == i && is_chain(members_[i])) replace(members_[i]);
    }
  }

 private:
  // A large result gains by a chain of one: it takes memory that an earlier run has given up, and ATen is slow where an
  // operand is not side by side or is repeated.
  bool is_chain(const std::vector<size_t>& members) const {
    return members.size() > 1 ||
           (members.size() == 1 && elements_[members[0]] && has_at_least(nodes_[members[0]]->output(), kLeastAlone));
  }

  std::optional<size_t> number_of(const jit::Value* value) const {
    const auto found = numbers_.find(value->node());
    return found == numbers_.end() ? std::nullopt : std::optional(found->second);
  }

  // The nodes whose results each node needs; what has effects, or draws random numbers, needs the one before it.
  void find_needs() {
    std::optional<size_t> effect;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      std::unordered_set<size_t> needs;
      const std::function<void(const jit::Node*)> visit = [&](const jit::Node* node) {
        for (const jit::Value* input : node->inputs()) {
          if (const auto from = number_of(input)) needs.insert(*from);
        }
        for (const jit::Block* inner : node->blocks()) {
          for (const jit::Node* within : inner->nodes()) visit(within);
          visit(inner->return_node());
        }
      };
      visit(nodes_[i]);
      if (!elements_[i] && keeps_its_place(nodes_[i])) {
        if (effect) needs.insert(*effect);
        effect = i;
      }
      needs_.emplace_back(needs.begin(), needs.end());
    }
  }

  bool keeps_its_place(jit::Node* node) const {
    return node->hasSideEffects() || node->isNondeterministic() || !node->blocks().empty() ||
           aliases_.hasWriters(node) || (node->maybeSchema() && node->schema().is_mutable());
  }

  at::ArrayRef<jit::Value*> operands(size_t number) const {
    return nodes_[number]->inputs().slice(0, elements_[number]->operands.size());
  }

  size_t unit(size_t number) const {
    while (parent_[number] != number) number = parent_[number];
    return number;
  }

  // Makes one chain of two where nothing outside of it is between its nodes.
  void join(size_t a, size_t b) {
    a = unit(a);
    b = unit(b);
    if (a == b || members_[a].size() + members_[b].size() > kMostNodes) return;
    std::unordered_set<size_t> seen = {a, b};
    std::vector<size_t> open;
    const size_t first = std::min(members_[a].front(), members_[b].front());
    const auto open_needs = [&](size_t of, bool itself) {
      for (const size_t member : members_[of]) {
        for (const size_t need : needs_[member]) {
          const size_t next = unit(need);
          if (!itself && (next == a || next == b)) return false;
          if (members_[next].back() > first && seen.insert(next).second) open.push_back(next);
        }
      }
      return true;
    };
    open_needs(a, true);
    open_needs(b, true);
    while (!open.empty()) {
      const size_t next = open.back();
      open.pop_back();
      if (!open_needs(next, false)) return;
    }
    parent_[b] = a;
    members_[a].insert(members_[a].end(), members_[b].begin(), members_[b].end());
    members_[b].clear();
    std::ranges::sort(members_[a]);
  }

  // Brings the nodes of each chain together, and otherwise leaves nodes where they are as far as that goes.
  void sort() {
    std::vector<size_t> units;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (unit(i) == i) units.push_back(i);
    }
    std::ranges::sort(units, {}, [&](size_t of) { return members_[of].back(); });
    std::vector<bool> placed(nodes_.size());
    const std::function<void(size_t)> place = [&](size_t of) {
      if (placed[of]) return;
      placed[of] = true;
      for (const size_t member : members_[of]) {
        for (const size_t need : needs_[member]) place(unit(need));
      }
      for (const size_t member : members_[of]) nodes_[member]->moveBefore(block_->return_node());
    };
    for (const size_t of : units) place(of);
  }

  // The nodes are left without a use.
  void replace(const std::vector<size_t>& members) {
    jit::Graph& graph = *program_.graph;
    ChainProgram chain;
    auto plain = std::make_shared<jit::Graph>();
    std::vector<jit::Value*> inputs, results;
    std::unordered_map<const jit::Value*, size_t> values;
    std::unordered_map<jit::Value*, jit::Value*> copies;
    std::vector<std::pair<jit::Value*, float>> constants;

    const auto is_inside = [&](const jit::Value* value) {
      const auto from = number_of(value);
      return from && std::ranges::binary_search(members, *from);
    };
    std::vector<size_t> order = members;
    const auto reduced = std::ranges::stable_partition(order, [&](size_t member) { return elements_[member]; });
    for (const size_t member : std::span(order.begin(), reduced.begin())) {
      const Element& element = *elements_[member];
      for (size_t i = 0; i < element.operands.size(); ++i) {
        jit::Value* const operand = nodes_[member]->input(i);
        if (is_inside(operand) || values.contains(operand)) continue;
        if (const auto number = constant(operand, element.operands[i])) {
          constants.emplace_back(operand, *number);
          values[operand] = 0;
        } else {
          values[operand] = inputs.size();
          inputs.push_back(operand);
          chain.inputs_are_masks.push_back(element.operands[i] == Kind::Mask);
        }
      }
    }
    for (const auto& [value, number] : constants) {
      values[value] = inputs.size() + chain.constants.size();
      chain.constants.push_back(number);
    }
    for (jit::Value* const input : inputs) copies[input] = plain->addInput()->setType(c10::TensorType::get());
    const auto copy = [&](jit::Value* value) {
      jit::Value*& known = copies[value];
      if (!known) known = plain->insertConstant(*constants_(value));
      return known;
    };
    for (const size_t member : order) {
      jit::Node* const node = nodes_[member];
      if (const Element* const element = elements_[member]) {
        ChainProgram::Instruction step{element->op, {}, element->a, element->b};
        for (const jit::Value* operand : operands(member)) step.operands.push_back(values.at(operand));
        values[node->output()] = chain.first_reduction();
        chain.instructions.push_back(std::move(step));
      } else {
        values[node->output()] = chain.first_reduction() + chain.reductions.size();
        chain.reductions.push_back(*reductions_[member]);
        chain.reductions.back().value = values.at(node->input(0));
      }
      jit::Node* const copied = plain->insertNode(plain->createClone(node, copy));
      copied->output()->setType(c10::TensorType::get());
      copies[node->output()] = copied->output();
      const auto leaves = [&](const jit::Use& use) {
        const auto user = numbers_.find(use.user);
        return user == numbers_.end() || !std::ranges::binary_search(members, user->second);
      };
      if (!std::ranges::any_of(node->output()->uses(), leaves)) continue;
      results.push_back(node->output());
      chain.results.push_back(values.at(node->output()));
      plain->registerOutput(copied->output());
    }

    const jit::WithInsertPoint at(nodes_[members.back()]);
    jit::Value* const list = graph.insertNode(graph.createList(c10::TensorType::get(), inputs))->output();
    jit::Value* const operation =
        bind_constant(program_, c10::IValue(c10::make_intrusive<Chain>(std::move(chain), plain)));
    jit::Node* const node = graph.create(c10::Symbol::fromQualString("onnx_torch::chain"), {list, operation});
    node->setSourceRange(nodes_[members.back()]->sourceRange());
    node->output()->setType(c10::ListType::ofTensors());
    graph.insertNode(node);
    jit::Node* const unpacked = graph.insertNode(graph.createListUnpack(node->output(), results.size()));
    for (size_t i = 0; i < results.size(); ++i) {
      unpacked->output(i)->setType(results[i]->type());
      results[i]->replaceAllUsesWith(unpacked->output(i));
    }
  }

  // The number that an operand is, where it adds no dimensions to a result.
  std::optional<float> constant(const jit::Value* operand, Kind kind) const {
    if (kind != Kind::Float) return {};
    const auto known = constants_(operand);
    const auto number = constants_.number(operand);
    if (!known || !number || (known->isTensor() && known->toTensor().dim() > 0)) return {};
    return static_cast<float>(*number);
  }

  Program& program_;
  jit::Block* block_;
  const Constants& constants_;
  const jit::AliasDb& aliases_;
  std::vector<jit::Node*> nodes_;
  std::unordered_map<const jit::Node*, size_t> numbers_;
  std::vector<const Element*> elements_;  // of those that chains can compute
  std::vector<const ChainProgram::Reduction*> reductions_;
  std::vector<std::vector<size_t>> needs_;
  std::vector<size_t> parent_;
  std::vector<std::vector<size_t>> members_;  // of units, in the graph's order
};

}  // namespace

void find_chains(Program& program) {
  register_chain();
  const Constants constants(program);
  const jit::AliasDb aliases(program.graph);
  const Elements elements(program, constants, aliases);
  const std::function<void(jit::Block*)> visit = [&](jit::Block* block) {
    for (jit::Node* node : block->nodes()) {
      for (jit::Block* inner : node->blocks()) visit(inner);
    }
    Block(program, block, constants, aliases, elements).run();
  };
  visit(program.graph->block());
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
