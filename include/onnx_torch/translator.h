// Translators for operators of your own domain, in a shared library of your own:
//
//   using namespace onnxtorch::translator;
//
//   Values scaled(Graph& graph, const Node& node) {
//     return {graph.call("aten::mul", {node.input(0), node.attr_float("factor")})};
//   }
//
//   ONNX_TORCH_OPERATORS(table) { table.add("my.domain", "Scaled", 1, scaled); }
//
// The library needs this header and LibTorch, and does not link onnx_torch. onnxtorch::load_library (library.h) or
// Python's onnx_torch.load_library loads it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_torch/arg.h"
#include "onnx_torch/error.h"
#include "onnx_torch/types.h"
#include "onnx_torch/visibility.h"

namespace onnxtorch::translator {

// A value of the graph under construction; default-constructed, an absent optional one.
class Value {
 public:
  Value() = default;
  bool absent() const { return graph_ == nullptr; }

  // Gives the element type of a tensor; Undefined where it is not known.
  ElementType element() const { return type_.element; }
  // Gives the same value, with its element type told, for an output whose type does not follow from torch's dtypes.
  Value as(ElementType element) const { return {graph_, ValueType::tensor(element)}; }

 private:
  friend struct ValueAccess;
  Value(void* graph, ValueType type) : graph_(graph), type_(std::move(type)) {}

  void* graph_ = nullptr;
  ValueType type_;
};

using Values = std::vector<Value>;

// An argument of a call: a value, a constant, a list of them, or none; kw("dim", 1) is one by name.
using Arg = BasicArg<Value>;
using onnxtorch::kw;
using onnxtorch::none;

// The graph that a translator writes to.
class Graph {
 public:
  // Calls an operator that torch knows by its name, such as "aten::relu" or one registered with TORCH_LIBRARY. The
  // overload is chosen, and arguments are converted, as TorchScript would. Positional arguments come first, then
  // kw(...) ones.
  virtual Values call_all(std::string_view name, const std::vector<Arg>& args) = 0;  // each result of several
  virtual Value call(std::string_view name, const std::vector<Arg>& args) = 0;       // the only result

  // Makes a constant, in the dtype that torch has for its element type; it goes to the model's device with the weights.
  virtual Value constant(const at::Tensor& tensor) = 0;
  virtual Value device() = 0;  // the model's device, for factories

  // Strings. A string tensor holds numbers that stand for texts; equal numbers are equal texts, so what moves or
  // compares elements calls torch's operators as for numbers. An operator that looks at the texts takes and gives
  // str[].
  virtual Value texts(const Value& strings) = 0;                  // str[]: the elements in row-major order
  virtual Value strings(const Arg& texts, const Arg& sizes) = 0;  // the string tensor of those elements and sizes

  // Control flow. The bodies write to this graph as usual. Both branches give values of the same types; a loop's body
  // gives those it carries. A condition and a trip count may be tensors, or on the host; none: true, and no end.
  virtual Values branch(const Value& condition, const std::function<Values()>& then_branch,
                        const std::function<Values()>& else_branch) = 0;
  struct Step {
    Value condition;  // whether to go on; absent: yes
    Values carried;
  };
  virtual Values loop(const Arg& trip_count, const Arg& condition, const std::vector<Arg>& carried,
                      const std::function<Step(const Value& iteration, const Values& carried)>& body) = 0;

  // Gives what is known of a value while translating.
  virtual std::optional<std::vector<int64_t>> known_ints(const Value& value) const = 0;
  virtual std::optional<std::vector<int64_t>> known_shape(const Value& value) const = 0;

 protected:
  ~Graph() = default;
};

// The ONNX node that is translated.
class Node {
 public:
  // Inputs. An index past the last given input, or one with an empty name, is absent.
  virtual size_t input_count() const = 0;
  virtual bool has(size_t i) const = 0;
  virtual Value input(size_t i) const = 0;    // as a tensor, or a sequence; absent stays absent
  virtual Value ints(size_t i) const = 0;     // as int[] on the host; absent stays absent
  virtual Value integer(size_t i) const = 0;  // a single element as int on the host
  virtual Value number(size_t i) const = 0;   // a single element as float on the host

  // Outputs.
  virtual size_t output_count() const = 0;
  virtual bool wants(size_t i) const = 0;  // the node names output i

  // Attributes; one that the node does not give is an error.
  virtual bool has_attribute(std::string_view name) const = 0;
  virtual int64_t attr_int(std::string_view name) const = 0;
  virtual double attr_float(std::string_view name) const = 0;
  virtual std::string attr_string(std::string_view name) const = 0;
  virtual std::vector<int64_t> attr_ints(std::string_view name) const = 0;
  virtual std::vector<double> attr_floats(std::string_view name) const = 0;
  virtual std::vector<std::string> attr_strings(std::string_view name) const = 0;
  virtual Value attr_tensor(std::string_view name) const = 0;

  // Translates an attribute that is a graph in place, in a branch or a loop's body where the call is there. It sees the
  // values of the graphs around it. May be called any number of times.
  virtual Values subgraph(std::string_view attribute, const std::vector<Arg>& inputs) const = 0;
  virtual size_t subgraph_output_count(std::string_view attribute) const = 0;

  virtual const NodeLabel& label() const = 0;
  [[noreturn]] virtual void fail(const std::string& what) const = 0;         // this use of the operator is invalid
  [[noreturn]] virtual void unsupported(const std::string& what) const = 0;  // it is valid, but cannot be translated

 protected:
  ~Node() = default;
};

// A translator, which gives the node's outputs in order; trailing ones that the node does not name may be left out.
using Function = std::function<Values(Graph& graph, const Node& node)>;

class OperatorTable {
 public:
  // Adds a translator, which holds from opset version `since_version` of the domain up to the next that is added.
  // Throws InputError for a domain of the ONNX standard; adding a version again replaces it, for models that are
  // compiled from then on.
  virtual void add(const std::string& domain, const std::string& op_type, int64_t since_version, Function function) = 0;

 protected:
  ~OperatorTable() = default;
};

}  // namespace onnxtorch::translator

// The function by which a library's operators are registered when it is loaded. The number in its name changes when
// this header does.
#define ONNX_TORCH_OPERATORS(table) \
  extern "C" ONNX_TORCH_API void onnx_torch_operators_2(::onnxtorch::translator::OperatorTable& table)  // NOLINT
