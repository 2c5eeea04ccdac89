// Load a model, compile it for a device, run it:
//
//   const auto model = onnxtorch::Model::load("model.onnx").compile({.device = "cuda:0"});
//   const at::Tensor y = model.run({x})[0].tensor();
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "onnx_torch/data.h"
#include "onnx_torch/error.h"
#include "onnx_torch/external.h"
#include "onnx_torch/options.h"
#include "onnx_torch/types.h"
#include "onnx_torch/visibility.h"

namespace onnxtorch {

struct ModelFile;
class PreparedModel;

// The place where an ONNX node runs.
struct PlacedNode {
  NodeLabel node;
  std::string output;  // the name of its first output
  std::string where;   // "CUDA:0" or "CPU"; "" where nothing is left of the node
  std::string why;     // what the host does of it, or why nothing is left
};

// A model ready to run. Immutable and cheap to copy; any number of threads may run one at the same time.
class ONNX_TORCH_API CompiledModel {
 public:
  const std::vector<InputSpec>& inputs() const;
  const std::vector<OutputSpec>& outputs() const;
  const Options& options() const;

  // Tells where each node runs, those of subgraphs and functions included.
  std::vector<PlacedNode> placement() const;

  // Runs the model on inputs in the order of the model's, all of them or all that have no initializer. Tensors may be
  // on any device; outputs are on the model's. Throws InputError where an input does not fit, RunError where a node
  // fails.
  Outputs run(const std::vector<Data>& inputs = {}) const;

  // Runs the model on inputs by name; `outputs` names values of the main graph, and only what they need is computed.
  // None: the model's outputs.
  Outputs run(const Feeds& inputs, const std::vector<std::string>& outputs = {}) const;

  // Gives back to the system the memory that runs have left for later ones, as after a batch much larger than those to
  // come. Other threads may run the model meanwhile.
  void trim() const;

 private:
  friend class Model;
  explicit CompiledModel(std::shared_ptr<const PreparedModel> prepared) : prepared_(std::move(prepared)) {}

  std::shared_ptr<const PreparedModel> prepared_;
};

// A model as it was read. Cheap to copy.
class ONNX_TORCH_API Model {
 public:
  // Reads a model. External data is what `external` gives, or else lies below `directory`: that of the file where none
  // is given; for bytes there is none by default. Throws InvalidModelError.
  static Model load(const std::filesystem::path& file, const std::filesystem::path& directory = {},
                    const ExternalReader& external = {});
  static Model from_bytes(std::string_view bytes, const std::filesystem::path& directory = {},
                          const ExternalReader& external = {});

  // Give the inputs and outputs as the model declares them.
  std::vector<InputSpec> inputs() const;
  std::vector<OutputSpec> outputs() const;
  std::map<std::string, std::string> metadata() const;  // its metadata_props

  // Prepares the model for a device. Throws UnsupportedError, InvalidModelError, DeviceError, or InputError where the
  // options do not fit the model.
  CompiledModel compile(const Options& options = {}) const;

 private:
  explicit Model(std::shared_ptr<const ModelFile> file) : file_(std::move(file)) {}

  std::shared_ptr<const ModelFile> file_;
};

// Does what the first compile() of a process has to wait for, and every model needs: torch compiles the functions that
// it has in TorchScript when it first looks for an operator, and a pass declares its operators when it first runs.
// Any thread may call this, also while models are compiled.
ONNX_TORCH_API void make_ready();

}  // namespace onnxtorch
