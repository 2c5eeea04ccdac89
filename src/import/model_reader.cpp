#include "import/model_reader.h"

#include <climits>
#include <fstream>

namespace onnxtorch {
namespace {

namespace fs = std::filesystem;

template <typename Imports>
Opsets collect(const Imports& imports) {
  Opsets opsets;
  for (const auto& import : imports) opsets[canonical_domain(import.domain())] = import.version();
  return opsets;
}

void check_size(uintmax_t size, const std::string& what) {
  if (size <= INT_MAX) return;
  throw InvalidModelError(what + " is larger than 2 GiB, the limit of a protobuf message; save it with external data");
}

template <typename... Directories>
std::shared_ptr<ModelFile> with_data_in(const Directories&... directories) {
  return std::shared_ptr<ModelFile>(new ModelFile{{}, ExternalData(directories...)});
}

}  // namespace

std::shared_ptr<const ModelFile> ModelFile::from_path(const fs::path& path, const fs::path& directory) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InvalidModelError("cannot open the model file " + path.string());
  std::error_code error;
  if (const auto size = fs::file_size(path, error); !error) check_size(size, path.string());
  const auto model = directory.empty()
                         ? with_data_in(fs::absolute(path).parent_path(), fs::canonical(path).parent_path())
                         : with_data_in(fs::absolute(directory));
  if (!model->proto.ParseFromIstream(&file)) throw InvalidModelError(path.string() + " is not an ONNX model");
  return model;
}

std::shared_ptr<const ModelFile> ModelFile::from_bytes(std::string_view bytes, const fs::path& directory) {
  check_size(bytes.size(), "the model given");
  const auto model = with_data_in(directory.empty() ? directory : fs::absolute(directory));
  if (!model->proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw InvalidModelError("the bytes given are not an ONNX model");
  }
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
