#include "export/script_module.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/frontend/canonicalize_modified_loop.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/shape_analysis.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;
using Role = GraphInput::Role;

constexpr const char* kConstants = "_constants";

template <typename Visit>
void for_each_node(jit::Block* block, const Visit& visit) {
  for (jit::Node* node : block->nodes()) {
    for (jit::Block* inner : node->blocks()) for_each_node(inner, visit);
    visit(node);
  }
}

// Gives the label of the ONNX node that a graph node was made for.
NodeLabel label_of(const Program& program, const jit::Node* node) {
  const auto source = node->sourceRange().source();
  const auto number = source ? node_number(source->text_str().str()) : std::nullopt;
  return number ? program.nodes.at(*number).label : NodeLabel{};
}

bool is_text(const ValueType& type) {
  if (type.inner) return is_text(*type.inner);
  return type.element == ElementType::String || type.key == ElementType::String;
}

// Visits the operands that torch has no gradient for: the statistics given to batch_norm and instance_norm, the weights
// of classes in a loss.
template <typename Visit>
void for_each_statistic(jit::Graph& graph, const Visit& visit) {
  for_each_node(graph.block(), [&](jit::Node* node) {
    const c10::FunctionSchema* schema = node->maybeSchema();
    for (size_t i = 0; schema && i < node->inputs().size(); ++i) {
      const std::string name = i < schema->arguments().size() ? schema->arguments()[i].name() : "";
      const bool class_weight = name == "weight" && node->kind() == c10::Symbol::aten("nll_loss_nd");
      if (name == "running_mean" || name == "running_var" || class_weight) visit(node, i);
    }
  });
}

class ModuleBuilder {
 public:
  ModuleBuilder(const Program& program, const ModuleNames& names)
      : program_(program),
        names_(names),
        graph_(program.graph->copy()),
        unit_(std::make_shared<jit::CompilationUnit>()),
        module_(new_module("__torch__.OnnxModel")) {}

  jit::Module build() {
    jit::EraseShapeInformation(graph_);  // what is exported takes other sizes where the model does
    module_.register_attribute("onnx_names", c10::StringType::get(), names_.record);
    find_statistics();
    add_attributes();
    connect_inputs();
    move_tensors();
    follow_device();
    check_shapes();
    merge_outputs();
    jit::CanonicalizeModifiedLoops(graph_);  // no code can be printed of a loop with a trip count and a condition
    jit::EliminateDeadCode(graph_);
    const c10::QualifiedName forward(*module_.type()->name(), "forward");
    module_.type()->addMethod(unit_->create_function(forward, graph_));
    return module_;
  }

 private:
  jit::Module new_module(const std::string& type_name) {
    jit::Module result(c10::QualifiedName(type_name), unit_, true);
    result.register_attribute("training", c10::BoolType::get(), true);
    return result;
  }

  jit::Module submodule(const jit::Module& parent, const std::string& name) {
    if (parent.hasattr(name)) return parent.attr(name).toModule();
    const jit::Module child = new_module("__torch__.OnnxModule");
    jit::Module(parent).register_module(name, child);
    return child;
  }

  std::vector<std::string> add_constant(const IValue& value) {
    const std::string name = std::to_string(constants_++);
    jit::Module constants = submodule(module_, kConstants);
    if (value.isTensor()) {
      constants.register_buffer(name, value.toTensor());
    } else {
      constants.register_attribute(name, value.type(), value);
    }
    return {kConstants, name};
  }

  std::vector<std::string> add_weight(size_t index, const std::vector<std::string>& path) {
    jit::Module owner = module_;
    for (size_t i = 0; i + 1 < path.size(); ++i) owner = submodule(owner, path[i]);
    const Constant& constant = program_.constants[index];
    const at::Tensor& weight = constant.value.toTensor();
    const bool trainable = is_differentiable(constant.element) && !statistics_.contains(index);
    owner.register_parameter(path.back(), trainable ? weight.detach().requires_grad_() : weight, !trainable);
    return path;
  }

  // Finds the statistics. Weights among them are buffers, as in torch's own modules; what is computed is cut off from
  // the gradients.
  void find_statistics() {
    for_each_statistic(*graph_, [&](jit::Node* node, size_t i) {
      jit::Value* value = node->input(i);
      const bool is_input = value->node() == graph_->param_node();
      if (is_input && program_.graph_inputs[value->offset()].role == Role::Constant) {
        statistics_.insert(program_.graph_inputs[value->offset()].index);
      } else if (value->type()->kind() == c10::TypeKind::TensorType) {
        const jit::WithInsertPoint at(node);
        node->replaceInput(i, graph_->insert(c10::aten::detach, {value}));
      }
    });
  }

  void add_attributes() {
    const std::vector<size_t> initializers = weights(program_);
    size_t named = 0;
    for (size_t i = 0; i < program_.constants.size(); ++i) {
      const bool is_weight = named < initializers.size() && initializers[named] == i;
      paths_.push_back(is_weight ? add_weight(i, names_.weights.at(named++))
                                 : add_constant(program_.constants[i].value));
    }
  }

  // Gives the value at a path of attributes, which is read once, before all other nodes.
  jit::Value* attribute(const std::vector<std::string>& path) {
    jit::Value* value = self_;
    jit::Module owner = module_;
    std::vector<std::string> prefix;
    for (const std::string& name : path) {
      prefix.push_back(name);
      const IValue held = owner.attr(name);
      jit::Value*& read = attributes_[prefix];
      if (!read) {
        const jit::WithInsertPoint at(first_);
        read = graph_->insertGetAttr(value, name);
      }
      value = read;
      if (held.isModule()) owner = held.toModule();
    }
    return value;
  }

  void connect_inputs() {
    first_ = *graph_->nodes().begin();
    self_ = graph_->insertInput(0, "self")->setType(module_.type());
    size_t kept = 1;
    size_t argument = 0;
    for (const GraphInput& input : program_.graph_inputs) {
      jit::Value* value = graph_->inputs()[kept];
      if (input.role == Role::Input) {
        value->setDebugName(names_.arguments.at(argument++));
        ++kept;
      } else {
        jit::Value* held = attribute(paths_.at(input.index));
        value->replaceAllUsesWith(held);
        graph_->eraseInput(kept);
      }
    }
  }

  // Makes attributes of the tensors that folding left in the graph, where they would stay behind when the module moves.
  void move_tensors() {
    for_each_node(graph_->block(), [&](jit::Node* node) {
      if (node->kind() != c10::prim::Constant || node->output()->type()->kind() != c10::TypeKind::TensorType) return;
      node->output()->replaceAllUsesWith(attribute(add_constant(*jit::toIValue(node->output()))));
    });
  }

  jit::Value* any_tensor() {
    for (const auto& [path, value] : attributes_) {
      if (value->type()->kind() == c10::TypeKind::TensorType) return value;
    }
    const auto inputs = graph_->inputs();
    const auto found = std::ranges::find_if(
        inputs, [](const jit::Value* v) { return v->type()->kind() == c10::TypeKind::TensorType; });
    return found == inputs.end() ? nullptr : *found;
  }

  void follow_device() {
    jit::Value* const tensor = any_tensor();
    jit::Value* device = nullptr;
    if (!tensor) return;
    for_each_node(graph_->block(), [&](jit::Node* node) {
      if (node->kind() != c10::prim::Constant || node->output()->type()->kind() != c10::TypeKind::DeviceObjType) return;
      if (!device) {
        const jit::WithInsertPoint at(first_);
        device = graph_->insert(c10::prim::device, {tensor});
      }
      node->output()->replaceAllUsesWith(device);
    });
  }

  // Adds checks of the sizes that the model fixes: they are built in, so that others would give wrong results.
  void check_shapes() {
    size_t argument = 1;
    for (const GraphInput& input : program_.graph_inputs) {
      if (input.role == Role::Input) check_shape(graph_->inputs()[argument++], program_.inputs[input.index].dims);
    }
  }

  void check_shape(jit::Value* input, const std::optional<std::vector<Dim>>& dims) {
    if (input->type()->kind() != c10::TypeKind::TensorType || !dims) return;
    std::vector<int64_t> sizes;
    for (const Dim& dim : *dims) sizes.push_back(dim.size);
    if (std::ranges::any_of(sizes, [](int64_t size) { return size < 0; })) return;
    std::ostringstream message;
    message << "the input " << input->debugName() << " must be of shape " << at::IntArrayRef(sizes);
    const jit::WithInsertPoint at(first_);
    jit::Value* differs = graph_->insert(c10::aten::ne, {graph_->insert(c10::aten::size, {input}), sizes});
    jit::Node* check = graph_->insertNode(graph_->create(c10::prim::If, {differs}, 0));
    const jit::WithInsertPoint inside(check->addBlock());
    check->addBlock();
    jit::Value* text = graph_->insertConstant(message.str());
    graph_->insertNode(graph_->create(c10::prim::RaiseException, {text, graph_->insertConstant(IValue())}, 0));
  }

  void merge_outputs() {
    if (graph_->outputs().size() == 1) return;
    const std::vector<jit::Value*> outputs(graph_->outputs().begin(), graph_->outputs().end());
    for (size_t i = outputs.size(); i-- > 0;) graph_->eraseOutput(i);
    graph_->registerOutput(graph_->insertNode(graph_->createTuple(outputs))->output());
  }

  const Program& program_;
  const ModuleNames& names_;
  std::shared_ptr<jit::Graph> graph_;
  std::shared_ptr<jit::CompilationUnit> unit_;
  jit::Module module_;
  size_t constants_ = 0;
  std::set<size_t> statistics_;                  // places in Program::constants
  std::vector<std::vector<std::string>> paths_;  // one for each of Program::constants
  std::map<std::vector<std::string>, jit::Value*> attributes_;
  jit::Value* self_ = nullptr;
  jit::Node* first_ = nullptr;  // attributes are read in front of it
};

}  // namespace

std::vector<size_t> weights(const Program& program) {
  std::map<std::string, int> count;
  for (const Constant& constant : program.constants) ++count[constant.name];
  std::vector<size_t> result;
  for (size_t i = 0; i < program.constants.size(); ++i) {
    const std::string& name = program.constants[i].name;
    if (!name.empty() && count[name] == 1) result.push_back(i);
  }
  return result;
}

std::vector<std::string> arguments(const Program& program) {
  std::vector<std::string> result;
  for (const GraphInput& input : program.graph_inputs) {
    if (input.role == Role::Input) result.push_back(program.inputs[input.index].name);
  }
  return result;
}

std::vector<CustomOperator> custom_operators(const Program& program) {
  std::vector<CustomOperator> result;
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (node->kind().is_aten() || node->kind().is_prim()) return;
    result.push_back({node->kind().toQualString(), label_of(program, node)});
  });
  return result;
}

void refuse_text(const Program& program) {
  const auto refuse = [](const std::string& what, const std::string& name) {
    throw UnsupportedError("a model that handles strings runs in onnx_torch only and cannot be exported: the " + what +
                           " \"" + name + "\" is of strings");
  };
  for (const InputSpec& input : program.inputs) {
    if (is_text(input.type)) refuse("input", input.name);
  }
  for (const OutputSpec& output : program.outputs) {
    if (is_text(output.type)) refuse("output", output.name);
  }
  for (size_t i = 0; i < program.graph_inputs.size(); ++i) {
    if (program.graph_inputs[i].role != Role::Strings) continue;
    const jit::Node* user = program.graph->inputs()[i]->uses().front().user;
    throw UnsupportedError("a model that handles strings runs in onnx_torch only and cannot be exported",
                           label_of(program, user));
  }
}

jit::Module script_module(const Program& program, const ModuleNames& names) {
  return ModuleBuilder(program, names).build();
}

}  // namespace onnxtorch
