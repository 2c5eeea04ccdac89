#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <optional>

#include "graph/constants.h"
#include "graph/symbols.h"
#include "graph/views.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"
#include "passes/general/attention_pattern.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using Sizes = std::vector<int64_t>;

// Keys or values that each head of a group has copies of: [batch, shared heads, heads of a group, count, size], and the
// sizes to which a reshape joins the heads.
struct Repeated {
  jit::Node* expand;
  jit::Value* sizes;
};

class GroupedHeads {
 public:
  explicit GroupedHeads(Program& program)
      : graph_(*program.graph), constants_(program), writers_(program.graph), views_(constants_, writers_) {}

  // Replaces an attention whose keys and values are such copies by one that reads what they are copies of. Tells
  // whether it is one.
  bool take(jit::Node* node, const Attention& found) {
    const jit::WithInsertPoint at(node);
    const auto keys = repeated(found.key, /*are_columns=*/true), values = repeated(found.value, /*are_columns=*/false);
    if (!keys || !values) return false;
    jit::Value* const mask = found.mask ? found.mask : graph_.insertConstant(c10::IValue());
    replace(node, "onnx_torch::grouped_attention",
            {found.query, expanded(*keys), expanded(*values), keys->sizes, values->sizes, mask,
             graph_.insertConstant(found.scale), graph_.insertConstant(found.without_nan)});
    return true;
  }

 private:
  // Tells whether the node repeats the third of five dimensions, as far as sizes are known.
  static bool repeats_heads(const jit::Node* node) {
    if (node->kind() != c10::aten::expand_copy && node->kind() != c10::aten::expand) return false;
    const auto from = sizes_of(node->input(0)), to = sizes_of(node->output());
    return from && to && from->size() == 5 && to->size() == 5 && (*from)[2] == 1;
  }

  // Keys are the columns of a matrix for the product, and values are the rows of one.
  std::optional<Repeated> repeated(jit::Value* value, bool are_columns) {
    const Sizes swapped{0, 1, 3, 2};
    for (const View& view : views_.of(value)) {
      const Sizes sizes = view.movement.from_sizes();
      if (!repeats_heads(view.of->node()) || sizes[1] == kUnknownSize || sizes[2] == kUnknownSize) continue;
      const Sizes joined{sizes[0], sizes[1] * sizes[2], sizes[3], sizes[4]};
      const auto identity = Movement::none(sizes);
      auto wanted = identity ? identity->reshaped(joined) : std::nullopt;
      if (wanted && are_columns) wanted = wanted->permuted(swapped);
      if (wanted == view.movement) return Repeated{view.of->node(), graph_.insertConstant(joined)};
    }
    // Movements know no more than one open size. The operator itself looks at what one reshape does.
    jit::Node* last = value->node();
    if (are_columns) {
      const auto dims = last->matches(kPermute) ? constants_.get<Sizes>(last->input(1)) : std::nullopt;
      if (dims != swapped) return {};
      last = last->input(0)->node();
    }
    if (!last->matches(kReshape) || !repeats_heads(last->input(0)->node())) return {};
    return Repeated{last->input(0)->node(), last->input(1)};
  }

  // Inserts the copies as a view of what they are copies of. It also stands for them where their sizes are read.
  jit::Value* expanded(const Repeated& of) {
    const jit::WithInsertPoint at(of.expand);
    jit::Value* const copies = of.expand->output();
    jit::Value* const result =
        graph_.insert(c10::aten::expand, {of.expand->input(0), of.expand->input(1)}, {}, of.expand->sourceRange());
    result->setType(copies->type());
    const auto uses = copies->uses();
    for (const jit::Use& use : uses) {
      if (use.user->kind() == c10::aten::size) use.user->replaceInput(use.offset, result);
    }
    return result;
  }

  jit::Graph& graph_;
  const Constants constants_;
  const Writers writers_;
  const Views views_;
};

}  // namespace

void find_attention(Program& program) {
  register_attention();
  jit::Graph& graph = *program.graph;
  GroupedHeads grouped(program);
  for_each_attention(program, [&](jit::Node* node, const Attention& found) {
    if (grouped.take(node, found)) return;
    const jit::WithInsertPoint at(node);
    jit::Value* const mask = found.mask ? found.mask : graph.insertConstant(c10::IValue());
    replace(node, "onnx_torch::attention",
            {found.query, found.key, found.value, mask, graph.insertConstant(found.scale),
             graph.insertConstant(found.without_nan)});
  });
  for_each_node(graph.block(), [](jit::Node* node) {
    if (node->kind() == c10::aten::scaled_dot_product_attention) replace(node, "onnx_torch::attention", node->inputs());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
