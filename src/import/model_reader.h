// The reading of a model, and the checks whether it keeps to the specification, before anything is translated.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "import/device_copies.h"
#include "import/external_data.h"
#include "onnx_torch/error.h"

namespace onnxtorch {

struct OperatorSchema;

struct ModelFile {
  // The model's message. From a file it comes without remarks on nodes and without the bytes of large initializers and
  // constants, which `external` has.
  onnx::ModelProto proto;
  ExternalData external;
  std::shared_ptr<DeviceCopies> copies = std::make_shared<DeviceCopies>();  // copies of initializers on devices

  // Reads a model. Its external data is what `external` gives, or else lies in `directory`. If none is given, that is
  // the file's directory for a path; for bytes there is none.
  static std::shared_ptr<const ModelFile> from_path(const std::filesystem::path& path,
                                                    const std::filesystem::path& directory = {},
                                                    const ExternalReader& external = {});
  static std::shared_ptr<const ModelFile> from_bytes(std::string_view bytes,
                                                     const std::filesystem::path& directory = {},
                                                     const ExternalReader& external = {});

  std::string serialized() const;  // the whole model, apart from data in other files
};

// Opset versions by domain, "ai.onnx" being ""; a model without imports is of opset 1.
using Opsets = std::map<std::string, int64_t>;
Opsets opsets_of(const onnx::ModelProto& model);
Opsets opsets_of(const onnx::FunctionProto& function);

std::string canonical_domain(const std::string& domain);
NodeLabel label_of(const onnx::NodeProto& node, const Opsets& opsets);
const onnx::FunctionProto* find_function(const onnx::ModelProto& model, const onnx::NodeProto& node);

// The reason why a model cannot be translated: an operator that is not supported, or a node that breaks its schema or
// fails.
struct Problem {
  NodeLabel node;
  std::string why;
  bool unsupported;
};
std::vector<Problem> problems(const onnx::ModelProto& model);

// Tells whether a version of an operator is in the translation table, or the operators of its function body are.
bool is_translated(const OperatorSchema& schema);

// Throws UnsupportedError, listing all operators that cannot be translated, or InvalidModelError, listing all nodes
// that break their schema.
void check(const onnx::ModelProto& model);

}  // namespace onnxtorch
