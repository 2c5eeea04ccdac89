// Small graphs for tests.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include <string>
#include <vector>

namespace onnxtorch::testing {

constexpr int64_t kAny = -1;

class GraphBuilder {
 public:
  explicit GraphBuilder(onnx::GraphProto& graph) : graph_(graph) {}

  GraphBuilder& input(const std::string& name, onnx::TensorProto::DataType type, const std::vector<int64_t>& dims) {
    auto* info = graph_.add_input();
    info->set_name(name);
    auto* tensor = info->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (const int64_t dim : dims) {
      auto* added = tensor->mutable_shape()->add_dim();
      if (dim != kAny) added->set_dim_value(dim);
    }
    return *this;
  }

  GraphBuilder& output(const std::string& name) {
    graph_.add_output()->set_name(name);
    return *this;
  }

  GraphBuilder& ints(const std::string& name, const std::vector<int64_t>& values, const std::vector<int64_t>& dims) {
    auto* tensor = graph_.add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::INT64);
    for (const int64_t dim : dims) tensor->add_dims(dim);
    for (const int64_t value : values) tensor->add_int64_data(value);
    return *this;
  }

  onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& name = "") {
    auto* node = graph_.add_node();
    node->set_op_type(op);
    node->set_name(name);
    for (const auto& input : inputs) node->add_input(input);
    for (const auto& output : outputs) node->add_output(output);
    return *node;
  }

 private:
  onnx::GraphProto& graph_;
};

inline void set_int(onnx::NodeProto& node, const std::string& name, int64_t value) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(value);
}

inline GraphBuilder add_graph(onnx::NodeProto& node, const std::string& name) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::GRAPH);
  return GraphBuilder(*attribute->mutable_g());
}

}  // namespace onnxtorch::testing
