#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/movement.h"
#include "graph/operator_traits.h"
#include "graph/symbols.h"
#include "graph/views.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "passes/general/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using Sizes = std::vector<int64_t>;

class Simplifying {
 public:
  explicit Simplifying(Program& program)
      : program_(program),
        graph_(*program.graph),
        constants_(program),
        writers_(program.graph),
        views_(constants_, writers_) {}

  void run() {
    for_each_node(graph_.block(), [&](jit::Node* node) {
      if (node->outputs().size() != 1 || !is_tensor(node->output()) || writers_.has_writers(node)) return;
      if (is_view(node)) {
        jit::Value* const view = node->output();
        if (!simplify(view)) hoist(view);
      } else if (has(node, Trait::Unary, Trait::Binary)) {
        sink(node);
      } else if (pads_nothing(node)) {
        node->output()->replaceAllUsesWith(node->input(0));
        node->destroy();
      } else {
        sink_below_product(node);
      }
    });
    eliminate_dead_code(program_.graph);
  }

 private:
  // Replaces a value by its view in the fewest steps. Tells whether these are fewer than before.
  bool simplify(jit::Value* value) {
    for (const View& view : views_.of(value)) {
      const auto steps = view.movement.steps();
      if (!steps || steps->count() >= view.own_steps) continue;
      const jit::WithInsertPoint at(value->node());
      replace(value->node(), made(view.of, view.movement, *steps));
      return true;
    }
    return false;
  }

  bool pads_nothing(const jit::Node* node) const {
    const auto pad = node->matches(kPad) ? constants_.get<Sizes>(node->input(1)) : std::nullopt;
    return pad && std::ranges::all_of(*pad, [](int64_t size) { return size == 0; });
  }

  // --- Moving later ---

  // Gives the constant by which an element-wise operator computes the same before a movement as by this one after it;
  // null where that is no view of the constant.
  jit::Value* aligned(jit::Value* value, const Movement& movement) {
    const auto known = constants_.tensor(value);
    if (!known || !known->defined() || known->numel() == 0) return nullptr;
    if (known->dim() == 0) return value;
    const Sizes before = movement.from_sizes(), after = movement.to_sizes();
    if (known->dim() > static_cast<int64_t>(after.size())) return nullptr;
    const size_t skipped = after.size() - static_cast<size_t>(known->dim());
    Sizes sizes(before.size(), 1);
    size_t next = 0;  // the dimensions that are not 1 must come in their order
    for (size_t i = skipped; i < after.size(); ++i) {
      const int64_t size = known->sizes()[i - skipped];
      if (size == 1) continue;
      const auto origin = movement.origin(i);
      if (!origin || *origin < next || after[i] != size) return nullptr;
      sizes[*origin] = size;
      next = *origin + 1;
    }
    // Leading dimensions would be added to the other operand, whose number of dimensions may be smaller.
    const auto first = std::ranges::find_if(sizes, [](int64_t size) { return size != 1; });
    sizes.erase(sizes.begin(), first == sizes.end() ? std::prev(first) : first);
    return bind_constant(program_, known->reshape(sizes));
  }

  // Gives the operands of which the node's are views, moved alike; none where they are not, or one would be broadcast.
  std::optional<std::vector<jit::Value*>> unmoved(jit::Node* node, size_t operands, const Movement& movement) {
    std::vector<jit::Value*> result;
    size_t moved = 0, only_here = 0;
    for (jit::Value* const input : node->inputs().slice(0, operands)) {
      if (!is_tensor(input)) {
        result.push_back(input);
        continue;
      }
      const auto all = views_.of(input);
      const auto found = std::ranges::find(all, movement, &View::movement);
      jit::Value* const of = found != all.end() ? found->of : aligned(input, movement);
      if (!of) return {};
      result.push_back(of);
      if (found == all.end()) continue;
      ++moved;
      if (input->uses().size() == 1) ++only_here;
    }
    if (only_here == 0 || (moved > 1 && !unknown_sizes_stay(movement))) return {};
    return result;
  }

  // Tells whether each unknown size, which may be 1 in one operand alone, is that of a whole dimension before and
  // after.
  static bool unknown_sizes_stay(const Movement& movement) {
    const Sizes before = movement.from_sizes(), after = movement.to_sizes();
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i] == kUnknownSize && !movement.origin(i)) return false;
    }
    return std::ranges::count(before, kUnknownSize) == std::ranges::count(after, kUnknownSize);
  }

  // Tells whether a node is a factor of a matrix product, which the product may take up.
  bool scales_product(const jit::Node* node) const {
    const bool scales = node->kind() == c10::aten::mul || node->kind() == c10::aten::div;
    const auto& uses = node->output()->uses();
    const bool by_number = scales && (constants_.number(node->input(0)) || constants_.number(node->input(1)));
    return by_number && uses.size() == 1 && uses[0].user->kind() == c10::aten::matmul;
  }

  // Computes element by element before the elements are moved.
  void sink(jit::Node* node) {
    const size_t operands = has(node, Trait::Unary) ? 1 : 2;
    for (const jit::Value* input : node->inputs().slice(operands)) {
      if (is_tensor(input)) return;
    }
    if (scales_product(node)) return;
    for (jit::Value* const input : node->inputs().slice(0, operands)) {
      if (!is_tensor(input)) continue;
      for (const View& view : views_.of(input)) {
        const auto steps = view.movement.steps();
        const Sizes sizes = view.movement.from_sizes();
        if (!steps || sizes.empty() || view.movement.to_sizes().empty()) continue;
        const auto inputs = unmoved(node, operands, view.movement);
        if (!inputs) continue;
        const jit::WithInsertPoint at(node);
        jit::Node* const early = graph_.insertNode(graph_.createClone(node, [](jit::Value* value) { return value; }));
        for (size_t i = 0; i < operands; ++i) early->replaceInput(i, (*inputs)[i]);
        early->output()->setType(type_with(node->output(), sizes));
        return replace(node, made(early->output(), view.movement, *steps));
      }
    }
  }

  // --- Products of rows and a constant matrix ---

  // Gives the rows; null where the node is no such product.
  jit::Value* rows_of(jit::Node* node) const {
    const auto is_matrix = [&](const jit::Value* value) {
      const auto known = constants_.tensor(value);
      return known && known->defined() && known->dim() == 2 && known->numel() > 0;
    };
    if (node->matches(kAddmm)) {
      const auto bias = constants_.tensor(node->input(0));
      const bool plain = constants_.number(node->input(3)) == 1.0 && constants_.number(node->input(4)) == 1.0;
      const bool fits = plain && bias && bias->dim() == 1 && is_matrix(node->input(2)) &&
                        bias->size(0) == constants_.tensor(node->input(2))->size(1);
      return fits ? node->input(1) : nullptr;
    }
    const auto kind = node->kind();
    const bool multiplies = kind == c10::aten::linear || kind == c10::aten::matmul || kind == c10::aten::mm;
    return multiplies && is_matrix(node->input(1)) ? node->input(0) : nullptr;
  }

  // Inserts the same product of other rows.
  jit::Value* product(jit::Node* like, jit::Value* rows, const Sizes& sizes) {
    const c10::TypePtr type = type_with(like->output(), sizes);
    jit::Value* result = nullptr;
    if (like->kind() == c10::aten::addmm) {
      jit::Value* const weight =
          inserted("aten::t", {like->input(2)}, c10::TensorType::get()->withScalarType(type_of(like->input(2))));
      result = inserted("aten::linear", {rows, weight, like->input(0)}, type);
    } else if (like->kind() == c10::aten::linear) {
      result = inserted("aten::linear", {rows, like->input(1), like->input(2)}, type);
    } else {
      result = inserted("aten::matmul", {rows, like->input(1)}, type);
    }
    return result;
  }

  // Tells whether rows stay rows, in their order.
  static bool keeps_rows(const Movement& movement) {
    const size_t before = movement.from_sizes().size(), after = movement.to_sizes().size();
    return movement.keeps_order() && before > 1 && after > 0 && movement.origin(after - 1) == before - 1;
  }

  static Sizes with_last(Sizes sizes, int64_t last) {
    sizes.back() = last;
    return sizes;
  }

  // Multiplies rows before they are arranged in other dimensions.
  void sink_below_product(jit::Node* node) {
    jit::Value* const rows = rows_of(node);
    const auto result = sizes_of(node->output());
    if (!rows || !result || result->empty() || result->back() == kUnknownSize) return;
    for (const View& view : views_.of(rows)) {
      if (!keeps_rows(view.movement)) continue;
      const Sizes sizes = with_last(view.movement.from_sizes(), result->back());
      const auto identity = Movement::none(sizes);
      const auto movement =
          identity ? identity->reshaped(with_last(view.movement.to_sizes(), result->back())) : identity;
      const auto steps = movement ? movement->steps() : std::nullopt;
      if (!steps) continue;
      const jit::WithInsertPoint at(node);
      return replace(node, made(product(node, view.of, sizes), *movement, *steps));
    }
  }

  // Arranges rows that are views themselves in the dimensions that their product's result takes in the end.
  void hoist(jit::Value* value) {
    for (const View& view : views_.of(value)) {
      jit::Value* const rows = rows_of(view.of->node());
      const auto sizes = rows ? sizes_of(rows) : std::nullopt;
      const bool only_here = view.of->uses().size() == 1 && view.own_steps == view.steps;
      if (!sizes || sizes->empty() || !only_here || !is_view(rows->node()) || rows->uses().size() != 1) continue;
      if (sizes->back() == kUnknownSize || !keeps_rows(view.movement)) continue;
      const Sizes wanted = view.movement.to_sizes();
      const auto identity = Movement::none(*sizes);
      const auto movement = identity ? identity->reshaped(with_last(wanted, sizes->back())) : identity;
      const auto steps = movement ? movement->steps() : std::nullopt;
      if (!steps) continue;
      jit::Value* arranged = nullptr;
      jit::Value* result = nullptr;
      {
        const jit::WithInsertPoint at(view.of->node());  // the node itself goes below
        arranged = made(rows, *movement, *steps);
        result = product(view.of->node(), arranged, wanted);
      }
      replace(value->node(), result);
      simplify(arranged);
      return;
    }
  }

  jit::Value* inserted(const char* name, at::ArrayRef<jit::Value*> inputs, const c10::TypePtr& type) {
    jit::Node* const node = graph_.insertNode(graph_.create(c10::Symbol::fromQualString(name), inputs));
    node->setSourceRange(graph_.insertPoint()->sourceRange());
    node->output()->setType(type);
    return node->output();
  }

  static c10::TypePtr type_with(const jit::Value* like, const Sizes& sizes) {
    std::vector<std::optional<int64_t>> shape;
    for (const int64_t size : sizes) shape.push_back(size == kUnknownSize ? std::nullopt : std::optional(size));
    const auto& type = like->type()->expectRef<c10::TensorType>();
    return c10::TensorType::create(type.scalarType(), type.device(), c10::SymbolicShape(shape), {}, {});
  }

  // Makes the view at the graph's insertion point.
  jit::Value* made(jit::Value* of, const Movement& movement, const Movement::Steps& steps) {
    jit::Value* result = of;
    const auto step = [&](const char* name, const std::optional<Sizes>& argument, const Sizes& sizes) {
      if (argument) result = inserted(name, {result, graph_.insertConstant(*argument)}, type_with(of, sizes));
    };
    const auto permuted = [&] {
      const Sizes before = steps.first.value_or(movement.from_sizes());
      Sizes sizes;
      for (const int64_t dim : steps.permutation.value_or(Sizes())) sizes.push_back(before[dim]);
      return sizes;
    };
    step("aten::reshape", steps.first, steps.first.value_or(Sizes()));
    step("aten::permute", steps.permutation, permuted());
    step("aten::reshape", steps.last, movement.to_sizes());
    return result;
  }

  // Replaces the node's result by a value, and removes what nothing needs any more, so that the uses of a value tell
  // who needs it.
  void replace(jit::Node* node, jit::Value* by) {
    node->output()->replaceAllUsesWith(by);
    remove(node);
  }

  void remove(jit::Node* node) {
    if (node->outputs().size() != 1 || !node->output()->uses().empty()) return;
    if (!is_view(node) && !has(node, Trait::Unary, Trait::Binary) && !rows_of(node)) return;
    const std::vector<jit::Value*> inputs = node->inputs().vec();
    node->destroy();
    for (jit::Value* const input : inputs) remove(input->node());
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
  const Writers writers_;
  const Views views_;
};

}  // namespace

void simplify_layout(Program& program) { Simplifying(program).run(); }

}  // namespace onnxtorch
