#include "language/past_form.h"

#include <algorithm>
#include <set>
#include <string>

namespace onnxtorch {
namespace {

bool grows(const CacheEntry& entry) { return !entry.past.empty() && !entry.of_encoder && entry.sequence_axis >= 0; }

bool all_grow(const Layout& layout) {
  const auto is_kept = [](const CacheEntry& entry) { return entry.past.empty() || entry.of_encoder || grows(entry); };
  return std::ranges::all_of(layout.caches, is_kept);
}

bool has_subgraphs(const onnx::NodeProto& node) {
  return std::ranges::any_of(node.attribute(), [](const auto& a) { return a.has_g() || a.graphs_size() > 0; });
}

// Tells whether the node is attention that has a past, and one that drops no rows.
bool is_attention_with_a_cache(const onnx::NodeProto& node) {
  return node.op_type() == "GroupQueryAttention" &&
         std::ranges::none_of(node.attribute(), [](const auto& a) { return a.name() == "sliding_window_cache"; });
}

// Tells whether nothing but the sums and the sizes of this value, and of what has the same elements, reaches other
// nodes.
bool is_counted_alone(const onnx::GraphProto& graph, const std::string& name) {
  std::set<std::string> same{name};
  for (const onnx::NodeProto& node : graph.node()) {
    if (std::ranges::none_of(node.input(), [&](const std::string& input) { return same.contains(input); })) continue;
    if (node.op_type() == "Cast" || node.op_type() == "Identity") {
      same.insert(node.output(0));
    } else if (node.op_type() != "Shape" && node.op_type() != "ReduceSum") {
      return false;
    }
  }
  return std::ranges::none_of(graph.output(), [&](const auto& output) { return same.contains(output.name()); });
}

}  // namespace

// Asks for positions as an input, as a model that computes them of the number of rows would count padding.
PastForm past_form_with_padding(const std::vector<InputSpec>& inputs, const Layout& layout) {
  const auto positions = layout.inputs.find("position_ids");
  if (positions == layout.inputs.end() || !all_grow(layout)) return PastForm::Exact;
  const auto input = std::ranges::find(inputs, positions->second, &InputSpec::name);
  return input->dims && input->dims->size() >= 2 ? PastForm::Padded : PastForm::Exact;
}

PastForm past_form_without_padding(const onnx::GraphProto& graph, const Layout& layout) {
  std::set<std::string> pasts;
  for (const CacheEntry& entry : layout.caches) {
    if (grows(entry)) pasts.insert(entry.past);
  }
  if (pasts.empty() || !all_grow(layout)) return PastForm::Exact;
  std::set<std::string> read;
  for (const onnx::NodeProto& node : graph.node()) {
    if (has_subgraphs(node)) return PastForm::Exact;  // a subgraph may read anything
    for (int i = 0; i < node.input_size(); ++i) {
      if (!pasts.contains(node.input(i))) continue;
      const bool is_past = i == 3 || i == 4;
      if (!is_past || !is_attention_with_a_cache(node)) return PastForm::Exact;
      read.insert(node.input(i));
    }
  }
  if (read != pasts) return PastForm::Exact;
  const auto mask = layout.inputs.find("attention_mask");
  const bool fits = mask == layout.inputs.end() || is_counted_alone(graph, mask->second);
  return fits ? PastForm::Whole : PastForm::Exact;
}

}  // namespace onnxtorch
