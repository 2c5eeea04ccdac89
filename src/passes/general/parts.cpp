#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <ranges>
#include <span>
#include <vector>

#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/operator_traits.h"
#include "graph/symbols.h"
#include "graph/writes.h"
#include "passes/general/linear_of_bits.h"
#include "passes/general/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using Symbols = std::vector<c10::ShapeSymbol>;

// The first or the last elements along a dimension. What is one element along it, and broadcast, has them, too.
struct Part {
  int64_t dim;
  bool is_last;

  bool operator==(const Part&) const = default;
};

// How a node computes a part of its result: of the same part of the first operands, of which there are `operands`. The
// last `whole` dimensions are not computed one by one.
struct Computed {
  size_t operands;
  int64_t whole = 0;
};

// Gives the sizes as far as they are known; nothing where not even their number is.
std::optional<Symbols> symbols_of(const jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  return type ? type->symbolic_sizes().sizes() : std::nullopt;
}

bool is_one(c10::ShapeSymbol size) { return size.is_static() && size.static_size() == 1; }

class Parts {
 public:
  explicit Parts(Program& program)
      : program_(program), graph_(*program.graph), constants_(program), writers_(program.graph) {}

  void run() {
    run(graph_.block());
    eliminate_dead_code(program_.graph);
  }

 private:
  // Goes from the last node to the first, as what is read of a result is known before the result's operands come.
  void run(jit::Block* block) {
    const std::vector<jit::Node*> nodes(block->nodes().begin(), block->nodes().end());
    for (jit::Node* const node : nodes | std::views::reverse) {
      for (jit::Block* inner : node->blocks()) run(inner);
      if (node->outputs().size() == 1 && is_tensor(node->output()) && !writers_.has_writers(node)) narrow(node);
    }
  }

  // Has a node compute the one part that is read of its result.
  void narrow(jit::Node* node) {
    const auto sizes = symbols_of(node->output());
    const auto computed = computed_of(node);
    if (!sizes || !computed) return;
    const auto part = part_read(node->output(), *sizes);
    const auto rank = static_cast<int64_t>(sizes->size());
    if (!part || part->dim >= rank - computed->whole || is_one((*sizes)[part->dim])) return;
    const jit::WithInsertPoint at(node);
    std::vector<jit::Value*> inputs = node->inputs().vec();
    for (jit::Value*& input : std::span(inputs).first(computed->operands)) {
      if (!is_tensor(input)) continue;
      const auto of = symbols_of(input);
      if (!of) return;
      const int64_t dim = part->dim - rank + static_cast<int64_t>(of->size());
      if (dim >= 0 && !is_one((*of)[dim])) input = part_of(input, {dim, part->is_last});
    }
    jit::Node* const less = graph_.insertNode(graph_.createClone(node, [](jit::Value* value) { return value; }));
    for (size_t i = 0; i < inputs.size(); ++i) less->replaceInput(i, inputs[i]);
    less->output()->setType(type_with(node->output(), part->dim));
    for (const jit::Use& use : std::vector<jit::Use>(node->output()->uses())) {
      if (use.user->matches(kSlice)) {
        use.user->output()->replaceAllUsesWith(less->output());
        use.user->destroy();
      } else {
        use.user->replaceInput(0, less->output());
        use.user->replaceInput(2, graph_.insertConstant(0));
      }
    }
    node->destroy();  // its operands' other uses tell what is read of these
  }

  // Gives the part of a value that each of its uses reads.
  std::optional<Part> part_read(const jit::Value* value, const Symbols& sizes) const {
    std::optional<Part> part;
    for (const jit::Use& use : value->uses()) {
      const auto found = use.offset == 0 ? part_taken(use.user, sizes) : std::nullopt;
      if (!found || (part && !(*part == *found))) return {};
      part = found;
    }
    return part;
  }

  // Gives the part that a node takes of a value of these sizes.
  std::optional<Part> part_taken(const jit::Node* node, const Symbols& sizes) const {
    const bool is_select = node->matches(kSelect);
    if (!is_select && !node->matches(kSlice)) return {};
    auto dim = constants_.get<int64_t>(node->input(1)), begin = constants_.get<int64_t>(node->input(2));
    if (!dim || !begin) return {};
    const auto rank = static_cast<int64_t>(sizes.size());
    if (*dim < 0) *dim += rank;
    if (*dim < 0 || *dim >= rank) return {};  // the run says so
    const c10::ShapeSymbol size = sizes[*dim];
    if (size.is_static() && *begin == size.static_size() - 1) *begin = -1;
    if (*begin != 0 && *begin != -1) return {};
    const Part part{*dim, *begin == -1};
    if (is_select) return part;
    const auto end = constants_(node->input(3));
    if (!end || constants_.get<int64_t>(node->input(4)) != 1) return {};
    const int64_t last = end->isNone() ? kEnd : end->toInt();
    const bool fits = part.is_last ? last == kEnd || (size.is_static() && last >= size.static_size()) : last == 1;
    return fits ? std::optional(part) : std::nullopt;
  }

  // Tells how a node computes; nothing where its operands are needed as wholes.
  std::optional<Computed> computed_of(const jit::Node* node) const {
    if (node->matches(kTo)) return Computed{1};
    if (has(node, Trait::Unary)) return element_wise(node, 1);
    if (has(node, Trait::Binary)) return element_wise(node, 2);
    if (has(node, Trait::Ternary)) return element_wise(node, 3);
    if (multiplies_rows(node)) return Computed{1, 1};
    if (node->kind() != c10::aten::layer_norm && node->kind() != c10::aten::rms_norm) return {};
    const auto normalized = constants_.get<std::vector<int64_t>>(node->input(1));
    return normalized ? std::optional(Computed{1, static_cast<int64_t>(normalized->size())}) : std::nullopt;
  }

  // An overload may take tensors for what are numbers elsewhere, such as the bounds of clamp.
  static std::optional<Computed> element_wise(const jit::Node* node, size_t operands) {
    const bool has_others = std::ranges::any_of(node->inputs().slice(operands), is_tensor);
    return has_others ? std::nullopt : std::optional(Computed{operands});
  }

  // Tells whether a node multiplies rows by a matrix, and adds at most one row to each.
  static bool multiplies_rows(const jit::Node* node) {
    if (node->kind() == kPackedNbits || node->kind() == kPackedNbitsInt8) return true;
    const bool is_linear = node->kind() == c10::aten::linear;
    if (!is_linear && node->kind() != c10::aten::matmul) return false;
    const auto x = symbols_of(node->input(0)), w = symbols_of(node->input(1));
    if (!x || !w || x->size() < 2 || w->size() != 2) return false;
    if (!is_linear || !is_tensor(node->input(2))) return true;
    const auto bias = symbols_of(node->input(2));
    return bias && bias->size() <= 1;
  }

  jit::Value* part_of(jit::Value* value, const Part& part) {
    jit::Value* const start = graph_.insertConstant(part.is_last ? -1 : 0);
    jit::Value* const end = part.is_last ? graph_.insertConstant(c10::IValue()) : graph_.insertConstant(1);
    jit::Node* const slice = graph_.insertNode(graph_.create(
        c10::aten::slice, {value, graph_.insertConstant(part.dim), start, end, graph_.insertConstant(1)}));
    slice->setSourceRange(graph_.insertPoint()->sourceRange());
    slice->output()->setType(type_with(value, part.dim));
    return slice->output();
  }

  // Gives the type of a part of a value. A dimension of unknown size may have no element.
  static c10::TypePtr type_with(const jit::Value* value, int64_t dim) {
    const auto& type = value->type()->expectRef<c10::TensorType>();
    Symbols sizes = type.symbolic_sizes().sizes().value();
    c10::ShapeSymbol& size = sizes[dim];
    size = size.is_static() && size.static_size() > 0 ? c10::ShapeSymbol::fromStaticSize(1)
                                                      : c10::ShapeSymbol::newSymbol();
    return type.withSymbolicShapes(c10::SymbolicShape(sizes));
  }

  static constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();  // how ONNX's Slice says "to the end"

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
  const Writers writers_;
};

}  // namespace

void compute_parts(Program& program) { Parts(program).run(); }

}  // namespace onnxtorch
