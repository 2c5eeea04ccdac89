// If, Loop, Scan, SequenceMap.
#include <onnx/onnx-ml.pb.h>

#include <span>

#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

Values if_(Translator& t, const NodeView& n) {
  return t.branch(
      n.boolean(0), [&] { return t.subgraph(n.attr_graph("then_branch"), {}); },
      [&] { return t.subgraph(n.attr_graph("else_branch"), {}); });
}

Values concatenated(Values front, std::span<const Value> back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

// Makes one empty list for each output that collects the values of all iterations.
Values empty_lists(Translator& t, size_t count) {
  Values lists;
  for (size_t i = 0; i < count; ++i) lists.push_back(t.list({}));
  return lists;
}

Values appended(Translator& t, std::span<const Value> lists, std::span<const Value> items) {
  Values result;
  for (size_t i = 0; i < lists.size(); ++i) {
    const Value list = t.call("aten::append", {lists[i], t.tensor(items[i])});
    result.push_back(list.as(ValueType::sequence(ValueType::tensor(items[i].type.element))));
  }
  return result;
}

Value stacked(Translator& t, const Value& list, int64_t axis, bool reverse) {
  const ElementType element = list.type.inner ? list.type.inner->element : ElementType::Undefined;
  return t.call("stack_iterations", {list, axis, reverse, element, t.device()}).as(element);
}

Values loop(Translator& t, const NodeView& n) {
  const onnx::GraphProto& graph = n.attr_graph("body");
  const size_t carried = n.input_count() - 2;
  if (graph.output_size() < static_cast<int>(1 + carried)) n.fail("its body has too few outputs");
  const Values initial(n.inputs().begin() + 2, n.inputs().end());
  const Values start = concatenated(initial, empty_lists(t, graph.output_size() - 1 - carried));

  Values result = t.loop(n.input(0), n.input(1), start, [&](const Value& iteration, const Values& state) {
    const std::span<const Value> values(state);
    const Values outputs =
        t.subgraph(graph, concatenated({iteration, t.scalar(true).as(ElementType::Bool)}, values.first(carried)));
    const std::span<const Value> rest = std::span(outputs).subspan(1);
    return Translator::Step{outputs[0],
                            concatenated({rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(carried)},
                                         appended(t, values.subspan(carried), rest.subspan(carried)))};
  });
  for (size_t i = carried; i < result.size(); ++i) result[i] = stacked(t, result[i], 0, false);
  return result;
}

struct ScanForm {
  const onnx::GraphProto& body;
  std::vector<int64_t> input_axes, input_directions, output_axes, output_directions;
};

Values scan(Translator& t, const ScanForm& form, const Values& states, const Values& scanned) {
  const size_t collected = form.body.output_size() - states.size();
  const Value count = t.call("aten::size", {scanned[0], form.input_axes[0]});
  const Value last = t.call("aten::sub", {count, 1});
  const auto slice = [&](size_t i, const Value& iteration) {
    const Value index = form.input_directions[i] ? t.call("aten::sub", {last, iteration}) : iteration;
    return t.call("aten::select", {scanned[i], form.input_axes[i], index}).as(scanned[i].type);
  };
  Values result = t.loop(
      count, {}, concatenated(states, empty_lists(t, collected)), [&](const Value& iteration, const Values& now) {
        const std::span<const Value> values(now);
        Values inputs(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(states.size()));
        for (size_t i = 0; i < scanned.size(); ++i) inputs.push_back(slice(i, iteration));
        const Values outputs = t.subgraph(form.body, inputs);
        const std::span<const Value> rest(outputs);
        return Translator::Step{{},
                                concatenated({rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(states.size())},
                                             appended(t, values.subspan(states.size()), rest.subspan(states.size())))};
      });
  for (size_t i = 0; i < collected; ++i) {
    Value& list = result[states.size() + i];
    list = stacked(t, list, form.output_axes[i], form.output_directions[i] != 0);
  }
  return result;
}

std::vector<int64_t> ints_or_zeros(const NodeView& n, const char* attribute, size_t count) {
  if (!n.has_attribute(attribute)) return std::vector<int64_t>(count, 0);
  std::vector<int64_t> given = n.attr_ints(attribute);
  if (given.size() != count) n.fail(std::string(attribute) + " must have " + std::to_string(count) + " elements");
  return given;
}

// The counts of a Scan: of inputs that are scanned, of those that are states, and of outputs that its body collects.
struct ScanCounts {
  size_t scanned, states, collected;
};

ScanCounts scan_counts(const NodeView& n, size_t inputs) {
  const auto scanned = static_cast<size_t>(n.attr_int("num_scan_inputs"));
  const auto outputs = static_cast<size_t>(n.attr_graph("body").output_size());
  if (scanned > inputs) n.fail("num_scan_inputs is more than the " + std::to_string(inputs) + " inputs");
  if (outputs < inputs - scanned) n.fail("its body has too few outputs");
  return {scanned, inputs - scanned, outputs - (inputs - scanned)};
}

Values scan_9(Translator& t, const NodeView& n) {
  const onnx::GraphProto& body = n.attr_graph("body");
  const Values inputs = n.tensors();
  const auto [scanned, states, collected] = scan_counts(n, inputs.size());
  const ScanForm form{
      body, ints_or_zeros(n, "scan_input_axes", scanned), ints_or_zeros(n, "scan_input_directions", scanned),
      ints_or_zeros(n, "scan_output_axes", collected), ints_or_zeros(n, "scan_output_directions", collected)};
  const auto middle = inputs.begin() + static_cast<std::ptrdiff_t>(states);
  return scan(t, form, {inputs.begin(), middle}, {middle, inputs.end()});
}

// Translates Scan-8, which runs over a batch: the first dimension of everything. Element i scans sequence_lens[i]
// steps; what it collects is filled up with zeros to the longest sequence.
Values scan_8(Translator& t, const NodeView& n) {
  const onnx::GraphProto& body = n.attr_graph("body");
  const Values inputs = n.tensors(1);
  const auto [scanned, states, collected] = scan_counts(n, inputs.size());
  const ScanForm form{body, std::vector<int64_t>(scanned, 0), ints_or_zeros(n, "directions", scanned),
                      std::vector<int64_t>(collected, 0), std::vector<int64_t>(collected, 0)};
  const Value steps = t.call("aten::size", {inputs[states], 1});
  const Value batch = t.call("aten::size", {inputs[states], 0});

  Values result = t.loop(batch, {}, empty_lists(t, states + collected), [&](const Value& element, const Values& lists) {
    const Value length =
        n.has(0) ? t.integer(t.call("aten::select", {n.tensor(0), 0, element}).as(ElementType::Int64)) : steps;
    Values own;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Value x = t.call("aten::select", {inputs[i], 0, element});
      if (i >= states) x = t.call("aten::narrow", {x, 0, 0, length});
      own.push_back(x.as(inputs[i].type));
    }
    const auto middle = own.begin() + static_cast<std::ptrdiff_t>(states);
    Values outputs = scan(t, form, {own.begin(), middle}, {middle, own.end()});
    for (size_t i = states; i < outputs.size(); ++i) {
      outputs[i] = t.call("fill_up_rows", {outputs[i], steps}).as(outputs[i].type);
    }
    return Translator::Step{{}, appended(t, lists, outputs)};
  });
  for (Value& list : result) list = stacked(t, list, 0, false);
  return result;
}

Values sequence_map(Translator& t, const NodeView& n) {
  const onnx::GraphProto& body = n.attr_graph("body");
  const Value count = t.call("aten::len", {n.input(0)});
  return t.loop(count, {}, empty_lists(t, body.output_size()), [&](const Value& iteration, const Values& lists) {
    Values inputs;
    for (const Value& input : n.inputs()) {
      const bool is_sequence = input.type.kind == ValueType::Kind::Sequence;
      inputs.push_back(is_sequence ? t.call("aten::__getitem__", {input, iteration}).as(*input.type.inner) : input);
    }
    return Translator::Step{{}, appended(t, lists, t.subgraph(body, inputs))};
  });
}

}  // namespace

void register_control_flow_ops(Registry& r) {
  r.op("If").since(1, if_).reviewed_to(25);
  r.op("Loop").since(1, loop).reviewed_to(25);
  r.op("Scan").since(8, scan_8).since(9, scan_9).reviewed_to(25);
  r.op("SequenceMap").since(17, sequence_map);
}

}  // namespace onnxtorch
