// The Translator that writes to a torch::jit::Graph.
#pragma once

#include <onnx/onnx-ml.pb.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/node_hashing.h>

#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "import/model_reader.h"
#include "import/tensor_proto.h"
#include "translate/facts.h"
#include "translate/translate.h"
#include "translate/translator.h"

namespace onnxtorch {

class GraphTranslator : public Translator {
 public:
  GraphTranslator(const std::shared_ptr<const ModelFile>& model, const TranslateOptions& options);
  Program run();
  const onnx::GraphProto& main_graph() const { return model_.graph(); }

  Values call_all(std::string_view function, std::vector<Arg> args) override;

  Value tensor(Value v) override;
  Value ints(Value v) override;
  Value integer(Value v) override;
  Value number(Value v) override;
  Value boolean(Value v) override;
  bool on_host(const Value& v) const override;
  bool reads_back() const override { return options_.reads_back; }
  bool bool_on_host(const Value& v) const override;

  std::optional<std::vector<int64_t>> known_ints(const Value& v) const override;
  std::optional<double> known_number(const Value& v) const override;
  std::optional<std::vector<int64_t>> known_shape(const Value& v) const override;
  std::optional<std::vector<std::optional<int64_t>>> known_sizes(const Value& v) const override;
  std::optional<c10::ScalarType> known_dtype(const Value& v) const override;
  std::optional<Values> items(const Value& v) override;

  Value scalar(Arg value) override;
  Value constant(const onnx::TensorProto& tensor) override;
  Value constant(const onnx::SparseTensorProto& tensor) override;
  Value constant(const at::Tensor& stored, ElementType type) override;
  Value object(const c10::IValue& object) override;
  at::Tensor stored(const onnx::TensorProto& tensor) override;
  int64_t string_id(std::string_view text) override;
  Value string(std::string_view text) override;
  Value strings(const std::vector<std::string>& texts) override;
  Value device() override;
  Value string_pool() override;

  Values branch(Value condition, const std::function<Values()>& then_branch,
                const std::function<Values()>& else_branch) override;
  Values loop(Value trip_count, Value condition, Values carried,
              const std::function<Step(Value, const Values&)>& body) override;
  Value named(const std::string& name) const override;
  Values subgraph(const onnx::GraphProto& graph, const Values& inputs) override;

 private:
  // The names a graph sees: its own, then those of the graphs around it.
  struct Scope {
    std::unordered_map<std::string, Value> names;
    Scope* outer;
    const Opsets* opsets;
    std::shared_ptr<const void> owner;                         // the owner of the messages that hold the graph
    std::unordered_map<std::string, ValueType> declared = {};  // types, by the graph's value infos
  };

 protected:
  // The position of the translation, to go on from there when a node has failed.
  struct TranslationPosition {
    Scope* scope;
    size_t depth;    // the nesting of functions
    size_t nesting;  // the nesting of functions and subgraphs
    std::optional<size_t> node;
    torch::jit::SourceRange location;
  };
  TranslationPosition position() const { return {scope_, expanding_.size(), nesting_, node_, location_}; }
  void return_to(const TranslationPosition& position);

  void translate_model();                           // translates all but its outputs
  virtual Values outputs_of(const NodeView& view);  // throws an Error that names the node
  ValueType type_of_output(const NodeView& view, size_t i) const;
  Value unknown(const ValueType& type);  // a value that nothing computes

 private:
  void declare_inputs();
  void declare_initializers(const onnx::GraphProto& graph);
  void collect_gradient_inputs(const onnx::GraphProto& graph);
  void define(const std::string& name, Value value);

  void translate(const onnx::GraphProto& graph);
  void translate(const onnx::NodeProto& node);
  Values translate_by(const NodeView& view);
  Values expand(const onnx::FunctionProto& function, const NodeView& view);
  void check_limits(const NodeLabel& label) const;
  void enter();  // enters a function or a subgraph
  void watch(const NodeView& view);
  void mark(const char* function, const std::vector<torch::jit::NamedValue>& arguments = {});
  void give(const std::string& name);
  void stamp_types(torch::jit::Block* block);
  void stamp_inputs();
  void place_known(torch::jit::Block* block);
  void finish();

  void share_constants(torch::jit::Node* before, const torch::jit::Node* end,
                       const std::vector<torch::jit::Value*>& results);

  torch::jit::Value* bind(std::string name, const c10::IValue& value);
  Value bind(std::string name, const at::Tensor& stored, ElementType type);
  Value known_constant(const c10::IValue& value);
  Value single_element(Value v, const char* conversion);
  Value unified(const Value& value, const Value& other);

  std::shared_ptr<const ModelFile> file_;
  const onnx::ModelProto& model_;
  const TranslateOptions& options_;
  Program program_;
  std::shared_ptr<torch::jit::Graph> graph_;
  Facts facts_;
  std::vector<std::vector<std::vector<int64_t>>> trials_;  // the sizes of each of the program's inputs
  std::unordered_set<torch::jit::Node*, torch::jit::HashNode, torch::jit::EqualNode> shared_constants_;
  TensorReader reader_;
  Opsets model_opsets_;
  Scope main_;  // the scope of the main graph
  Scope* scope_ = &main_;
  std::optional<size_t> node_;  // the number of the node being translated
  std::vector<OutputSpec> declared_outputs_;
  torch::jit::SourceRange location_;
  torch::jit::Value* string_pool_ = nullptr;
  std::set<std::string> gradient_inputs_;              // values that Gradient nodes differentiate by
  std::vector<const onnx::FunctionProto*> expanding_;  // the functions around the node, outermost first
  size_t nesting_ = 0;                                 // the number of functions and subgraphs around the node
};

// Gives the graph's form of an argument: a value of it, or a constant.
torch::jit::NamedValue named_value(torch::jit::Graph& graph, const Arg& arg);

}  // namespace onnxtorch
