#include "graph/views.h"

#include <algorithm>

#include "graph/known_type.h"
#include "graph/operator_traits.h"
#include "graph/symbols.h"
#include "graph/walk.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using Sizes = std::vector<int64_t>;

constexpr auto kTranspose = "aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)";

bool are_known(const Sizes& sizes) { return std::ranges::find(sizes, kUnknownSize) == sizes.end(); }

}  // namespace

std::optional<Sizes> sizes_of(const jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  const auto sizes = type ? type->sizes().sizes() : std::nullopt;
  if (!sizes) return {};
  Sizes result;
  for (const auto& size : *sizes) result.push_back(size.value_or(kUnknownSize));
  return result;
}

bool is_view(const jit::Node* node) { return has(node, Trait::Arranges, Trait::Repeats); }

// Gives the same movement followed by what the node does.
std::optional<Movement> Views::followed(const Movement& movement, const jit::Node* node) const {
  if (node->matches(kPermute)) {
    const auto dims = constants_.get<Sizes>(node->input(1));
    return dims ? movement.permuted(*dims) : std::nullopt;
  }
  if (node->matches(kTranspose) || node->matches(kTransposeMatrix)) {
    const auto rank = static_cast<int64_t>(movement.to_sizes().size());
    const bool of_matrix = node->inputs().size() == 1;
    const auto first = of_matrix ? 0 : constants_.get<int64_t>(node->input(1));
    const auto second = of_matrix ? 1 : constants_.get<int64_t>(node->input(2));
    if (!first || !second || (of_matrix && rank != 2)) return {};
    Sizes dims(rank);
    for (int64_t i = 0; i < rank; ++i) dims[i] = i;
    const auto is_there = [&](int64_t dim) { return dim >= -rank && dim < rank; };
    if (!is_there(*first) || !is_there(*second)) return {};
    const auto wrapped = [&](int64_t dim) { return dim < 0 ? dim + rank : dim; };
    std::swap(dims[wrapped(*first)], dims[wrapped(*second)]);
    return movement.permuted(dims);
  }
  const auto sizes = sizes_of(node->output());
  if (!sizes) return {};
  if (has(node, Trait::Repeats) && (!are_known(*sizes) || movement.to_sizes() != *sizes)) return {};
  return movement.reshaped(*sizes);
}

std::vector<View> Views::of(jit::Value* value) const {
  std::vector<jit::Node*> steps;
  for (jit::Value* at = value; is_view(at->node()) && !writers_.has_writers(at->node()); at = at->node()->input(0))
    steps.push_back(at->node());
  std::vector<View> result;
  for (size_t count = steps.size(); count > 0; --count) {
    jit::Value* const of = steps[count - 1]->input(0);
    const auto sizes = is_tensor(of) ? sizes_of(of) : std::nullopt;
    auto movement = sizes ? Movement::none(*sizes) : std::nullopt;
    for (size_t i = count; i-- > 0 && movement;) movement = followed(*movement, steps[i]);
    if (!movement) continue;
    size_t own = 1;
    while (own < count && steps[own]->output()->uses().size() == 1) ++own;
    result.push_back({of, *movement, count, own});
  }
  return result;
}

}  // namespace onnxtorch
