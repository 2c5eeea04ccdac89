#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "import/model_reader.h"
#include "import/schema.h"
#include "translate/refused.h"
#include "translate/registry.h"
#include "translate/user_operators.h"

namespace onnxtorch {
namespace {

const char* type_name(int attribute_type) {
  static constexpr const char* kNames[] = {"undefined",      "float", "int",     "string",  "tensor", "graph",
                                           "floats",         "ints",  "strings", "tensors", "graphs", "sparse tensor",
                                           "sparse tensors", "type",  "types"};
  return attribute_type >= 0 && attribute_type < static_cast<int>(std::size(kNames)) ? kNames[attribute_type]
                                                                                     : "unknown";
}

class Checker {
 public:
  explicit Checker(const onnx::ModelProto& model) : model_(model) {}

  std::vector<Problem> run() {
    visit(model_.graph(), opsets_of(model_));
    in_function_ = true;
    for (size_t i = 0; i < functions_.size(); ++i) {  // the list grows meanwhile
      visit_all(functions_[i]->node(), opsets_of(*functions_[i]));
    }
    return std::move(problems_);
  }

 private:
  void visit(const onnx::GraphProto& graph, const Opsets& opsets) { visit_all(graph.node(), opsets); }

  // Visits the nodes of a graph, and checks that a name stands for one value.
  void visit_all(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const Opsets& opsets) {
    std::unordered_set<std::string_view> names;
    for (const auto& node : nodes) {
      visit(node, opsets);
      for (const auto& name : node.output()) {
        if (!name.empty() && !names.insert(name).second)
          blame(label_of(node, opsets), "the value \"" + name + "\" is given twice");
      }
    }
  }

  void visit(const onnx::NodeProto& node, const Opsets& opsets) {
    const NodeLabel label = label_of(node, opsets);
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) visit(attribute.g(), opsets);
      for (const auto& graph : attribute.graphs()) visit(graph, opsets);
      if (!in_function_ && !attribute.ref_attr_name().empty()) {
        blame(label, "the attribute \"" + attribute.name() + "\" refers to one of a function, and is in none");
      }
    }
    if (const auto* function = find_function(model_, node)) {
      if (visited_.insert(function).second) functions_.push_back(function);
      return;
    }
    if (find_user_operator(label.domain, node.op_type(), label.version)) return;
    const int newest = newest_opset(label.domain);
    const OperatorSchema* schema = find_schema(label.domain, node.op_type(), label.version);
    if (label.version > newest && newest > 0) {
      refuse(label, "opset " + std::to_string(label.version) + " is newer than the newest known one, " +
                        std::to_string(newest));
    } else if (schema && is_translated(*schema)) {
      check_against(*schema, node, label);
    } else if (const std::string_view why = why_refused(label.domain, node.op_type()); !why.empty()) {
      refuse(label, std::string(why));
    } else if (!schema) {
      refuse(label, "no such operator");
    } else {
      refuse(label, "version " + std::to_string(schema->since_version) + " is not supported");
    }
  }

  void check_against(const OperatorSchema& schema, const onnx::NodeProto& node, const NodeLabel& label) {
    const auto count = [](const auto& names) { return static_cast<int>(names.size()); };
    if (count(node.input()) < schema.min_inputs || count(node.input()) > schema.max_inputs) {
      blame(label, "has " + std::to_string(node.input_size()) + " inputs; allowed are " +
                       std::to_string(schema.min_inputs) + " to " + std::to_string(schema.max_inputs));
    }
    if (count(node.output()) < schema.min_outputs || count(node.output()) > schema.max_outputs) {
      blame(label, "has " + std::to_string(node.output_size()) + " outputs; allowed are " +
                       std::to_string(schema.min_outputs) + " to " + std::to_string(schema.max_outputs));
    }
    for (int i = 0; i < node.input_size() && i < static_cast<int>(schema.inputs.size()); ++i) {
      if (node.input(i).empty() && schema.inputs[i].option == FormalOption::Single) {
        blame(label, "the required input \"" + std::string(schema.inputs[i].name) + "\" is missing");
      }
    }
    for (const auto& attribute : node.attribute()) {
      const AttributeSchema* known = schema.find_attribute(attribute.name());
      if (!known) {
        if (!schema.open_attributes) blame(label, "unknown attribute \"" + attribute.name() + "\"");
      } else if (attribute.type() != 0 && attribute.type() != known->type) {
        blame(label, "the attribute \"" + attribute.name() + "\" must be of type " + type_name(known->type) + ", not " +
                         type_name(attribute.type()));
      }
    }
    for (const AttributeSchema& attribute : schema.attributes) {
      const bool given =
          std::ranges::any_of(node.attribute(), [&](const auto& a) { return a.name() == attribute.name; });
      if (attribute.required && !given) {
        blame(label, "the required attribute \"" + std::string(attribute.name) + "\" is missing");
      }
    }
  }

  void refuse(const NodeLabel& label, const std::string& why) { problems_.push_back({label, why, true}); }
  void blame(const NodeLabel& label, const std::string& why) { problems_.push_back({label, why, false}); }

  const onnx::ModelProto& model_;
  std::set<const onnx::FunctionProto*> visited_;
  std::vector<const onnx::FunctionProto*> functions_;  // in the order in which they are called first
  bool in_function_ = false;
  std::vector<Problem> problems_;
};

}  // namespace

bool is_translated(const OperatorSchema& schema) {
  if (registry().find(schema.domain, schema.name, schema.since_version)) return true;
  if (schema.bodies.empty()) return false;
  onnx::FunctionProto body;
  body.ParseFromArray(schema.bodies[0].function.data(), static_cast<int>(schema.bodies[0].function.size()));
  const Opsets opsets = opsets_of(body);
  return std::ranges::all_of(body.node(), [&](const onnx::NodeProto& node) {
    const NodeLabel label = label_of(node, opsets);
    const OperatorSchema* inner = find_schema(label.domain, node.op_type(), label.version);
    return inner && is_translated(*inner);
  });
}

std::vector<Problem> problems(const onnx::ModelProto& model) {
  if (!model.has_graph()) throw InvalidModelError("the model holds no graph");
  return Checker(model).run();
}

void check(const onnx::ModelProto& model) {
  std::string unsupported, invalid;
  NodeLabel first_unsupported, first_invalid;
  for (const Problem& problem : problems(model)) {
    std::string& lines = problem.unsupported ? unsupported : invalid;
    if (lines.empty()) (problem.unsupported ? first_unsupported : first_invalid) = problem.node;
    lines += "\n  " + problem.node.str() + ": " + problem.why;
  }
  if (!unsupported.empty()) {
    throw UnsupportedError("the model needs operators that are not supported:" + unsupported, first_unsupported);
  }
  if (!invalid.empty()) throw InvalidModelError("the model breaks the ONNX specification:" + invalid, first_invalid);
}

}  // namespace onnxtorch
