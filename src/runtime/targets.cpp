#include "runtime/targets.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

// Gives the value that this one begins with, if its operator can put the rest behind it.
const jit::Value* beginning_of(const jit::Value* value) {
  static const auto kGroupQueryAttention = c10::Symbol::fromQualString("onnx_torch::group_query_attention"),
                    kScatterRows = c10::Symbol::fromQualString("onnx_torch::scatter_rows"),
                    kCat = c10::Symbol::fromQualString("onnx_torch::cat");
  const jit::Node* const node = value->node();
  if (node->kind() == kGroupQueryAttention && value->offset() > 0) {
    return node->namedInput(value->offset() == 1 ? "past_key" : "past_value");
  }
  if (node->kind() == kScatterRows) return node->input(0);
  if (node->kind() != kCat || node->input(0)->node()->kind() != c10::prim::ListConstruct) return nullptr;
  const jit::Value* const list = node->input(0);
  return list->uses().size() == 1 && !list->node()->inputs().empty() ? list->node()->input(0) : nullptr;
}

bool reads_elements(const jit::Use& use) {
  const c10::Symbol kind = use.user->kind();
  return kind != c10::aten::size && kind != c10::aten::dim && kind != c10::prim::dtype;
}

// Gives the branches of an If, one of which is run.
at::ArrayRef<const jit::Block*> branches_of(const jit::Value* value) {
  if (value->node()->kind() != c10::prim::If) return {};
  return value->node()->blocks();
}

// Gives the value that this one begins with, in a branch as well.
const jit::Value* past_of(const jit::Value* value) {
  for (const jit::Block* const branch : branches_of(value)) {
    if (const jit::Value* const past = beginning_of(branch->outputs()[value->offset()])) return past;
  }
  return beginning_of(value);
}

// Tells whether a run reads the past's elements in no other operator than the one that puts the rest behind it.
bool grows_alone(const jit::Value* past, const jit::Value* value) {
  const auto readers = [&](const jit::Block* block) {
    return std::ranges::count_if(past->uses(), [&](const jit::Use& use) {
      return reads_elements(use) && (!block || use.user->owningBlock() == block);
    });
  };
  const auto all = readers(nullptr);
  if (beginning_of(value) == past) return all == 1;
  decltype(all + 0) in_branches = 0;
  for (const jit::Block* const branch : branches_of(value)) {
    const jit::Value* const output = branch->outputs()[value->offset()];
    const auto here = readers(branch);
    const bool is_given_once = std::ranges::count(branch->outputs(), output) == 1;
    if (beginning_of(output) == past && (here != 1 || !is_given_once)) return false;
    in_branches += here;
  }
  return in_branches == all;
}

// Gives the index of a graph's input among those of the caller.
std::optional<size_t> number_of(const jit::Value* value, const Program& program) {
  if (value->node() != program.graph->param_node()) return {};
  const auto is_callers = [](const GraphInput& input) { return input.role == GraphInput::Role::Input; };
  const auto place = program.graph_inputs.begin() + static_cast<std::ptrdiff_t>(value->offset());
  if (!is_callers(*place)) return {};
  return std::ranges::count_if(program.graph_inputs.begin(), place, is_callers);
}

// The range of bytes from the first to the last element of a tensor.
struct Range {
  const char *begin, *end;

  static Range of(const at::Tensor& t) {
    const auto* const begin = static_cast<const char*>(t.const_data_ptr());
    if (t.numel() == 0) return {begin, begin};
    int64_t last = 0;
    for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
    return {begin, begin + (last + 1) * t.element_size()};
  }

  bool meets(const Range& other) const { return std::less()(begin, other.end) && std::less()(other.begin, end); }
};

bool can_grow_to(const at::Tensor& past, const at::Tensor& present) {
  if (past.const_data_ptr() != present.const_data_ptr() || past.scalar_type() != present.scalar_type() ||
      past.dim() != present.dim() || past.numel() == 0) {
    return false;
  }
  for (int64_t d = 0; d < past.dim(); ++d) {
    if (present.size(d) < past.size(d) || (past.size(d) > 1 && past.stride(d) != present.stride(d))) return false;
  }
  return true;
}

}  // namespace

std::vector<Growth> growths_of(const Program& program) {
  std::vector<Growth> found;
  const auto outputs = program.graph->outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const jit::Value* const past = past_of(outputs[i]);
    const auto input = past ? number_of(past, program) : std::nullopt;
    if (input && grows_alone(past, outputs[i]) && std::ranges::count(outputs, outputs[i]) == 1) {
      found.push_back({*input, i});
    }
  }
  return found;
}

Lent lent(Targets targets, std::span<const IValue> inputs, std::span<const Growth> growths) {
  Lent result;
  const bool has_any = std::ranges::any_of(targets, [](const at::Tensor& t) { return t.defined(); });
  if (!has_any) return result;
  std::vector<std::optional<Range>> of_inputs(inputs.size()), of_targets(targets.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].isTensor() && inputs[i].toTensor().is_cpu()) of_inputs[i] = Range::of(inputs[i].toTensor());
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].defined()) of_targets[i] = Range::of(targets[i]);
  }
  // Tells whether the target's memory is its own, and that of one input at most.
  const auto is_alone = [&](size_t target, std::optional<size_t> input) {
    const auto meets = [&](const std::vector<std::optional<Range>>& ranges, std::optional<size_t> but) {
      for (size_t i = 0; i < ranges.size(); ++i) {
        if (i != but && ranges[i] && ranges[i]->meets(*of_targets[target])) return true;
      }
      return false;
    };
    return !meets(of_inputs, input) && !meets(of_targets, target);
  };
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!targets[i].defined()) continue;
    const auto growth = std::ranges::find(growths, i, &Growth::result);
    if (growth != growths.end() && of_inputs[growth->input] && is_alone(i, growth->input) &&
        can_grow_to(inputs[growth->input].toTensor(), targets[i])) {
      result.grown.push_back({inputs[growth->input].toTensor(), targets[i]});
    } else if (!is_alone(i, std::nullopt)) {
      targets[i].reset();
    }
  }
  result.targets = std::move(targets);
  return result;
}

}  // namespace onnxtorch
