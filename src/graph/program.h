// A translated model: a device-free TorchScript graph and all that is needed to feed it.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/string_pool.h"
#include "graph/value.h"
#include "onnx_torch/error.h"

namespace onnx {
class TensorProto;
}

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace onnxtorch {

class DeviceCopies;

// An input of the graph that is the same in each run: an initializer, or what the translation or a pass has computed.
struct Constant {
  std::string name;   // the initializer's name; empty for other constants
  c10::IValue value;  // a tensor, or an object of a kernel
  ElementType element = ElementType::Undefined;
  const onnx::TensorProto* source = nullptr;  // the message of an initializer
};

// An ONNX node as it was translated.
struct TranslatedNode {
  NodeLabel label;
  std::string output;            // the name of its first output
  std::optional<size_t> around;  // the number of the node whose body it is in
};

struct GraphInput {
  enum class Role : uint8_t { Input, Constant, Strings };
  Role role;
  size_t index;  // an index into Program::inputs or Program::constants
};

// The device and the precision that the passes make a program ready for.
struct Target {
  c10::Device device = c10::kCPU;
  c10::ScalarType precision = c10::kFloat;  // float32 convolutions and products with constant weights take it
  bool tf32 = false;                        // float32 may be multiplied in TF32, on CUDA
};

// The range of the sizes of one dimension of an input.
struct SizeRange {
  int64_t least, largest;
};

struct Program {
  std::shared_ptr<torch::jit::Graph> graph;
  std::vector<GraphInput> graph_inputs;  // in the graph's order
  std::vector<InputSpec> inputs;
  std::vector<std::vector<SizeRange>> tried;  // the sizes of each input for which the facts were tried
  size_t translated_hash = 0;  // of the graph's text as it was translated; sizes for which it is alike share the graph
  std::vector<OutputSpec> outputs;
  std::vector<Constant> constants;
  c10::intrusive_ptr<StringPool> strings;  // the model's own strings
  std::vector<TranslatedNode> nodes;       // the ONNX nodes, by the number in a graph node's source range
  bool needs_autograd = false;
  Target target = {};
  std::shared_ptr<DeviceCopies> copies;  // copies of the model's initializers on devices
};

// Tells whether an input has a size that comes with the run.
bool has_open_sizes(const Program& program);

// Gives the graph one more constant.
torch::jit::Value* bind_constant(Program& program, c10::IValue value);

// Takes away the constants, and the strings, that nothing uses.
void drop_unused(Program& program);

// Gives the TorchScript type of an ONNX one.
c10::TypePtr torchscript_type(const ValueType& type);

// Reads a node's number from the message of an error thrown while its graph ran.
std::optional<size_t> node_number(const std::string& message);

}  // namespace onnxtorch
