#include "import/model_reader.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <array>
#include <climits>
#include <fstream>
#include <optional>

#include "import/node_order.h"

namespace onnxtorch {
namespace {

namespace fs = std::filesystem;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

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

constexpr size_t kLarge = 1 << 12;  // bytes of a tensor that is not parsed

// Calls action(number, content, whole) for each field of a message; the content of one that has no length is empty.
// Returns whether it is a message.
template <typename Action>
bool for_each_field(std::string_view message, const Action& action) {
  using Wire = google::protobuf::internal::WireFormatLite;
  CodedInputStream in(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  const auto position = [&] { return static_cast<size_t>(in.CurrentPosition()); };
  for (size_t start = 0; const uint32_t tag = in.ReadTag(); start = position()) {
    uint32_t length = 0;
    if (Wire::GetTagWireType(tag) == Wire::WIRETYPE_LENGTH_DELIMITED) {
      if (!in.ReadVarint32(&length) || !in.Skip(static_cast<int>(length))) return false;
    } else if (!Wire::SkipField(&in, tag)) {
      return false;
    }
    action(Wire::GetTagFieldNumber(tag), message.substr(position() - length, length),
           message.substr(start, position() - start));
  }
  return in.ConsumedEntireMessage();
}

// The message with change(content) as the content of each field of this number. Nothing if it is no message.
template <typename Change>
std::optional<std::string> with_changed(std::string_view message, int number, const Change& change) {
  std::string result;
  bool is_message = true;
  const bool has_fields = for_each_field(message, [&](int of, std::string_view content, std::string_view whole) {
    const std::optional<std::string> changed = of == number ? change(content) : std::nullopt;
    is_message = is_message && (of != number || changed);
    if (!changed) {
      result += whole;
      return;
    }
    std::array<uint8_t, 10> head;
    uint8_t* end = CodedOutputStream::WriteTagToArray(static_cast<uint32_t>(number) << 3 | 2, head.data());
    end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(changed->size()), end);
    result.append(head.data(), end);
    result += *changed;
  });
  return has_fields && is_message ? std::optional(std::move(result)) : std::nullopt;
}

// A tensor of a file, which refers to the file for its bytes if they are many.
std::optional<std::string> referring(std::string_view tensor, std::string_view file) {
  std::string result;
  std::string_view data;
  bool is_external = false;
  const bool is_message = for_each_field(tensor, [&](int number, std::string_view content, std::string_view whole) {
    is_external |= number == onnx::TensorProto::kExternalDataFieldNumber;
    if (number == onnx::TensorProto::kRawDataFieldNumber) {
      data = content;
    } else {
      result += whole;
    }
  });
  if (!is_message) return {};
  if (is_external || data.size() < kLarge) return std::string(tensor);
  onnx::TensorProto reference;
  reference.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto add = [&](const char* key, std::string value) {
    auto* const entry = reference.add_external_data();
    entry->set_key(key);
    entry->set_value(std::move(value));
  };
  add("location", std::string(kOwnFile));
  add("offset", std::to_string(data.data() - file.data()));
  add("length", std::to_string(data.size()));
  return result + reference.SerializeAsString();  // of two messages in a row, the second's fields count
}

// A node without what exporters tell of it, often ten times as much as the rest.
std::optional<std::string> without_remarks(std::string_view node) {
  std::string result;
  const bool is_message = for_each_field(node, [&](int number, std::string_view, std::string_view whole) {
    const bool is_remark =
        number == onnx::NodeProto::kMetadataPropsFieldNumber || number == onnx::NodeProto::kDocStringFieldNumber;
    if (!is_remark) result += whole;
  });
  return is_message ? std::optional(std::move(result)) : std::nullopt;
}

// The model without the bytes of its large initializers, and without remarks on the graph's nodes.
std::optional<std::string> without_ballast(std::string_view file) {
  return with_changed(file, onnx::ModelProto::kGraphFieldNumber, [&](std::string_view graph) {
    const auto light = with_changed(graph, onnx::GraphProto::kInitializerFieldNumber,
                                    [&](std::string_view tensor) { return referring(tensor, file); });
    return light ? with_changed(*light, onnx::GraphProto::kNodeFieldNumber, without_remarks) : std::nullopt;
  });
}

std::shared_ptr<const OpenFile> opened(const fs::path& path) {
  try {
    return std::make_shared<const OpenFile>(path);
  } catch (const fs::filesystem_error&) {
    throw InvalidModelError("cannot open the model file " + path.string());
  }
}

template <typename... Arguments>
std::shared_ptr<ModelFile> with_data_in(const Arguments&... arguments) {
  return std::shared_ptr<ModelFile>(new ModelFile{{}, ExternalData(arguments...)});
}

}  // namespace

std::shared_ptr<const ModelFile> ModelFile::from_path(const fs::path& path, const fs::path& directory,
                                                      const ExternalReader& external) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw InvalidModelError("cannot open the model file " + path.string());
  std::error_code error;
  const auto size = fs::file_size(path, error);
  const bool is_large = !error && size >= kLarge;
  if (!error) check_size(size, path.string());
  const auto file = is_large ? opened(path) : nullptr;
  const auto model = directory.empty() ? with_data_in(fs::absolute(path).parent_path(),
                                                      fs::canonical(path).parent_path(), file, external)
                                       : with_data_in(fs::absolute(directory), fs::path(), file, external);
  const auto check = [&](bool parsed) {
    if (!parsed) throw InvalidModelError(path.string() + " is not an ONNX model");
  };
  if (is_large) {
    const auto message = without_ballast(file->mapped().view);
    check(message && model->proto.ParseFromString(*message));
  } else {
    check(model->proto.ParseFromIstream(&stream));
  }
  order_nodes(model->proto);
  return model;
}

std::shared_ptr<const ModelFile> ModelFile::from_bytes(std::string_view bytes, const fs::path& directory,
                                                       const ExternalReader& external) {
  check_size(bytes.size(), "the model given");
  const auto model =
      with_data_in(directory.empty() ? directory : fs::absolute(directory), fs::path(), nullptr, external);
  if (!model->proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw InvalidModelError("the bytes given are not an ONNX model");
  }
  order_nodes(model->proto);
  return model;
}

std::string ModelFile::serialized() const {
  onnx::ModelProto whole = proto;
  for (onnx::TensorProto& tensor : *whole.mutable_graph()->mutable_initializer()) {
    if (!ExternalData::length_in_own_file(tensor)) continue;
    tensor.set_raw_data(std::string(external.read(tensor, 0).view));
    tensor.clear_external_data();
    tensor.clear_data_location();
  }
  return whole.SerializeAsString();
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
