// A translated model: a device-free TorchScript graph and all that is needed to feed it.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/string_pool.h"
#include "graph/value.h"
#include "import/external_data.h"
#include "onnx_torch/error.h"
#include "onnx_torch/options.h"

namespace onnx {
class TensorProto;
}

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace onnxtorch {

class DeviceCopies;
struct ModelFile;
struct Problem;

struct Bound {
  std::string name;   // of the initializer; empty for other constants
  c10::IValue value;  // a tensor, or an object of a kernel
  ElementType element = ElementType::Undefined;
  const onnx::TensorProto* source = nullptr;  // of an initializer
};

// An ONNX node as it was translated.
struct TranslatedNode {
  NodeLabel label;
  std::string output;            // the name of its first
  std::optional<size_t> around;  // the number of the node whose body it is in
};

struct GraphInput {
  enum class Role : uint8_t { Input, Bound, Strings };
  Role role;
  size_t index;  // into Program::inputs or Program::bound
};

// What the passes make a program ready for.
struct Target {
  c10::Device device = c10::kCPU;
  c10::ScalarType precision = c10::kFloat;  // of convolutions and products of float32 with constant weights
  bool tf32 = false;                        // whether float32 may be multiplied in TF32, on CUDA
};

struct Program {
  std::shared_ptr<torch::jit::Graph> graph;
  std::vector<GraphInput> graph_inputs;  // in the graph's order
  std::vector<InputSpec> inputs;
  std::vector<std::vector<int64_t>> tried;  // the largest sizes of each input that what is known was tried with
  std::vector<OutputSpec> outputs;
  std::vector<Bound> bound;
  c10::intrusive_ptr<StringPool> strings;  // the model's own
  std::vector<TranslatedNode> nodes;       // by the number in a graph node's source range
  bool needs_autograd = false;
  Target target = {};
  std::shared_ptr<DeviceCopies> copies;  // of the model's initializers
};

// One graph of a model among those that callers may ask for.
struct Variant {
  std::set<std::string> overridden;  // initializers that the caller feeds
  std::vector<std::string> outputs;  // values of the main graph that the caller wants; none: the model's outputs
  bool timed = false;                // a NodeTimer is told when each node begins and ends
  bool guarded = false;              // a RunGuard is asked in front of each node and each iteration
  std::vector<std::vector<int64_t>> sizes = {};  // of each input in a run, which facts are tried with; none: any run

  auto operator<=>(const Variant&) const = default;
};

struct TranslateOptions {
  Variant variant;
  std::map<std::string, int64_t> shapes;  // sizes of symbolic dimensions
  std::optional<size_t> watched;          // the number of a node whose input shapes are noted when it runs
  bool trainable = false;                 // floating initializers may change later: no tensor is computed from them now
  bool keeps_scripts = false;             // kept scripts are one node each, for the passes of a device to find
  bool any_aten = false;                  // ATen nodes may call any operator, as who trusts the model allows
  ExternalAccess external = {};           // how files of external data are read
  Limits limits = {};                     // on translating, and on folding afterwards
};

// Gives the graph one more constant.
torch::jit::Value* bind_constant(Program& program, c10::IValue value);

// Takes away the constants, and the strings, that nothing uses.
void drop_unused(Program& program);

// The TorchScript type of an ONNX one.
c10::TypePtr torchscript_type(const ValueType& type);

// The program's constants may be views of the model, which they then keep.
Program translate(const std::shared_ptr<const ModelFile>& model, const TranslateOptions& options = {});

// Why nodes cannot be translated: of each that fails by itself, not just as another did. None where all can be.
std::vector<Problem> translation_problems(const std::shared_ptr<const ModelFile>& model,
                                          const TranslateOptions& options = {});

// A node's number, from the message of an error thrown while its graph ran.
std::optional<size_t> node_number(const std::string& message);

}  // namespace onnxtorch
