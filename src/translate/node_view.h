// The view that a translator has of the ONNX node it translates.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/value.h"
#include "import/schema.h"
#include "onnx_torch/error.h"

namespace onnx {
class AttributeProto;
class GraphProto;
class NodeProto;
class SparseTensorProto;
class TensorProto;
}  // namespace onnx

namespace onnxtorch {

class Translator;

// Gives the formal parameter that the i-th actual one belongs to, as the last one may be variadic; or null.
const FormalParameter* formal_at(std::span<const FormalParameter> formals, size_t i);

class NodeView {
 public:
  NodeView(Translator& translator, const onnx::NodeProto& proto, const OperatorSchema* schema, NodeLabel label,
           Values inputs);

  // Inputs. An index past the last given input, or one with an empty name, is absent.
  size_t input_count() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && !inputs_[i].absent(); }
  Value input(size_t i) const { return has(i) ? inputs_[i] : Value{}; }  // as it is: on the host or not
  Value tensor(size_t i) const;                                          // as a tensor; absent stays absent
  Value ints(size_t i) const;                                            // as int[] on the host; absent stays absent
  Value integer(size_t i) const;                                         // a single element as int on the host
  Value number(size_t i) const;                                          // a single element as float on the host
  Value boolean(size_t i) const;                                         // a single element as bool on the host
  const Values& inputs() const { return inputs_; }
  Values tensors(size_t from = 0) const;  // all inputs from an index on, as tensors
  ElementType element(size_t i) const;    // of input i; Undefined where absent
  // Tells whether this is shape arithmetic: some input is on the host, and the others are as well, or are known tensors
  // of int64 or int32 of rank 0 or 1, so that the result can stay there. Only inputs from an index on count.
  bool on_host(size_t from = 0) const;

  // Outputs.
  size_t output_count() const;
  bool wants(size_t i) const;             // the node names output i
  ValueType output_type(size_t i) const;  // as the schema gives it from the inputs' types; may be unknown
  ElementType output_element(size_t i = 0) const { return output_type(i).element; }

  // Attributes, with the schema's default where the node does not give one; an error where there is neither.
  bool has_attribute(std::string_view name) const { return attribute(name) != nullptr; }  // given, or defaulted
  int64_t attr_int(std::string_view name) const;
  bool attr_flag(std::string_view name) const;  // whether it is there, and not 0
  double attr_float(std::string_view name) const;
  std::string attr_string(std::string_view name) const;
  std::vector<int64_t> attr_ints(std::string_view name) const;
  std::vector<double> attr_floats(std::string_view name) const;
  std::vector<std::string> attr_strings(std::string_view name) const;
  ElementType attr_element(std::string_view name) const;
  ValueType attr_type(std::string_view name) const;
  Value attr_tensor(std::string_view name) const;
  const onnx::GraphProto& attr_graph(std::string_view name) const;
  const onnx::AttributeProto* attribute(std::string_view name) const;  // null where there is neither

  const onnx::NodeProto& proto() const { return proto_; }
  const OperatorSchema* schema() const { return schema_; }
  const NodeLabel& label() const { return label_; }
  [[noreturn]] void fail(const std::string& what) const;         // this use of the operator is invalid
  [[noreturn]] void unsupported(const std::string& what) const;  // it is valid, but cannot be translated

 private:
  const onnx::AttributeProto& required(std::string_view name) const;

  Translator& translator_;
  const onnx::NodeProto& proto_;
  const OperatorSchema* schema_;
  NodeLabel label_;
  Values inputs_;
  mutable std::vector<std::shared_ptr<onnx::AttributeProto>> defaults_;  // parsed schema defaults; none holds a tensor
};

}  // namespace onnxtorch
