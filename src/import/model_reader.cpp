#include "import/model_reader.h"

#include <fstream>
#include <sstream>

namespace onnxtorch {
namespace {

template <typename Imports>
Opsets collect(const Imports& imports) {
  Opsets opsets;
  for (const auto& import : imports) opsets[canonical_domain(import.domain())] = import.version();
  return opsets;
}

}  // namespace

std::shared_ptr<const ModelFile> ModelFile::from_path(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InvalidModelError("cannot open the model file " + path.string());
  auto model = std::make_shared<ModelFile>();
  if (!model->proto.ParseFromIstream(&file)) throw InvalidModelError(path.string() + " is not an ONNX model");
  model->directory = path.parent_path();
  return model;
}

std::shared_ptr<const ModelFile> ModelFile::from_bytes(const std::string& bytes, const std::filesystem::path& directory) {
  auto model = std::make_shared<ModelFile>();
  if (!model->proto.ParseFromString(bytes)) throw InvalidModelError("the bytes given are not an ONNX model");
  model->directory = directory;
  return model;
}

std::string canonical_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

Opsets opsets_of(const onnx::ModelProto& model) {
  Opsets opsets = collect(model.opset_import());
  if (opsets.empty()) opsets[""] = 1;
  return opsets;
}

Opsets opsets_of(const onnx::FunctionProto& function) { return collect(function.opset_import()); }

NodeLabel label_of(const onnx::NodeProto& node, const Opsets& opsets) {
  const std::string domain = canonical_domain(node.domain());
  const auto version = opsets.find(domain);
  return {node.op_type(), node.name(), domain, version == opsets.end() ? 1 : version->second};
}

const onnx::FunctionProto* find_function(const onnx::ModelProto& model, const onnx::NodeProto& node) {
  for (const onnx::FunctionProto& function : model.functions()) {
    if (function.name() == node.op_type() && function.overload() == node.overload() &&
        canonical_domain(function.domain()) == canonical_domain(node.domain())) {
      return &function;
    }
  }
  return nullptr;
}

}  // namespace onnxtorch
