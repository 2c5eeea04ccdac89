// The builder of the TorchScript graph of one model. Operator families write to it through call(); they see no
// TorchScript header.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/value.h"
#include "translate/arg.h"
#include "translate/node_view.h"

namespace at {
class Tensor;
}
namespace c10 {
struct IValue;
}

namespace onnxtorch {

class Translator {
 public:
  virtual ~Translator() = default;

  // Calls an operator ("aten::relu", "onnx_torch::roi_align") or, where the name has no namespace, a function of
  // src/ops/scripts. The overload is chosen, and arguments are converted, as TorchScript would. Positional arguments
  // come first, then kw(...) ones.
  Value call(std::string_view function, std::vector<Arg> args);                   // the only result
  virtual Values call_all(std::string_view function, std::vector<Arg> args) = 0;  // each result of several

  // Conversions; each returns its argument where it has that form already, or is absent.
  virtual Value tensor(Value v) = 0;                    // host ints become an int64 tensor
  virtual Value ints(Value v) = 0;                      // int[]; a runtime tensor is read back from its device
  virtual Value integer(Value v) = 0;                   // int; likewise
  virtual Value number(Value v) = 0;                    // float; likewise
  virtual Value boolean(Value v) = 0;                   // bool; likewise
  virtual bool on_host(const Value& v) const = 0;       // is it int or int[]?
  virtual bool bool_on_host(const Value& v) const = 0;  // is it bool or bool[]?

  // Tells whether numbers in tensors may decide what a run does next. On a device the host waits for them, and a run
  // cannot be recorded.
  virtual bool reads_back() const = 0;

  // Look-ups of what is known of a value while translating.
  virtual std::optional<std::vector<int64_t>> known_ints(const Value& v) const = 0;
  virtual std::optional<double> known_number(const Value& v) const = 0;  // of a tensor of rank 0
  virtual std::optional<std::vector<int64_t>> known_shape(const Value& v) const = 0;
  // Gives the same where dimensions may be open; nothing where even their number is.
  virtual std::optional<std::vector<std::optional<int64_t>>> known_sizes(const Value& v) const = 0;
  virtual std::optional<c10::ScalarType> known_dtype(const Value& v) const = 0;
  // Gives the elements of what is on the host, or of a known integer tensor of rank 0 or 1, as one int or bool each;
  // nothing where even their number is not known.
  virtual std::optional<Values> items(const Value& v) = 0;

  // Constants.
  virtual Value scalar(Arg value) = 0;                       // an int, float, bool, str, list of them, or None
  Value list(const Values& items) { return scalar(items); }  // a sequence; of tensors where it is empty
  virtual Value constant(const onnx::TensorProto& tensor) = 0;
  virtual Value constant(const onnx::SparseTensorProto& tensor) = 0;  // made dense
  virtual Value constant(const at::Tensor& stored,
                         ElementType type) = 0;                      // goes to the model's device with the weights
  virtual Value object(const c10::IValue& object) = 0;               // an object of a class of src/kernels
  virtual at::Tensor stored(const onnx::TensorProto& tensor) = 0;    // a tensor in storage form, for such an object
  virtual int64_t string_id(std::string_view text) = 0;              // the id of a string, for such an object
  virtual Value string(std::string_view text) = 0;                   // a string tensor of rank 0
  virtual Value strings(const std::vector<std::string>& texts) = 0;  // a string tensor of rank 1
  virtual Value device() = 0;                                        // the model's device, for factories
  virtual Value string_pool() = 0;  // the run's StringPool, first argument of the text kernels

  // Control flow. The bodies write to this translator as usual; what they return is brought to one type over the
  // branches or iterations.
  virtual Values branch(Value condition, const std::function<Values()>& then_branch,
                        const std::function<Values()>& else_branch) = 0;
  struct Step {
    Value condition;  // true where the loop goes on; absent: yes
    Values carried;
  };
  virtual Values loop(Value trip_count, Value condition, Values carried,
                      const std::function<Step(Value iteration, const Values& carried)>& body) = 0;

  // Gives the value that a name stands for where the node is.
  virtual Value named(const std::string& name) const = 0;

  // Translates a subgraph in place; it sees the values of the graphs around it.
  virtual Values subgraph(const onnx::GraphProto& graph, const Values& inputs) = 0;
};

using TranslateFunction = std::function<Values(Translator&, const NodeView&)>;

// Gives a translator that calls a function of src/ops/scripts, binding its parameters by their names to the node's
// inputs and attributes as the ONNX schema names them (inputs first), but for those that are fixed here; see
// src/ops/README.md.
TranslateFunction script(std::string function, std::vector<Arg> fixed = {});

// Gives the result of a torch operator as ONNX has it: numbers are tensors, and the dtype, where it is known, tells the
// type.
Value as_output(Translator& t, const Value& result);

// Translates an ATen node: calls the ATen operator that the attribute "operator" names. The other attributes are
// arguments by name; each input is the next argument that is still open, and, where that takes all inputs, a tensor.
Values aten(Translator& t, const NodeView& n);

// Gives a translator that calls one operator that torch knows, "namespace::name" or "namespace::name.overload",
// likewise.
TranslateFunction torch_operator(const std::string& name);

}  // namespace onnxtorch
