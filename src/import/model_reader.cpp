#include "import/model_reader.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <climits>
#include <optional>

#include "base/memory_reserve.h"
#include "import/node_order.h"
#include "import/other_formats.h"

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

constexpr size_t kLarge = 1 << 12;  // bytes from which on the data of a tensor is not parsed

// A file as a stream that protobuf reads.
class FileStream : public google::protobuf::io::CopyingInputStream {
 public:
  explicit FileStream(const OpenFile& file) : file_(file), size_(file.size()) {}

  int Read(void* buffer, int size) override {
    const int64_t count =
        file_.read_some(position_, std::min<int64_t>(size, size_ - position_), static_cast<char*>(buffer));
    position_ += count;
    return static_cast<int>(count);
  }
  int Skip(int count) override {
    const int64_t skipped = std::min<int64_t>(count, size_ - position_);
    position_ += skipped;
    return static_cast<int>(skipped);
  }

 private:
  const OpenFile& file_;
  const int64_t size_;
  int64_t position_ = 0;
};

using Wire = google::protobuf::internal::WireFormatLite;

constexpr uint32_t bytes_tag(int field) { return Wire::MakeTag(field, Wire::WIRETYPE_LENGTH_DELIMITED); }

// The places of the bytes of those tensors of a graph that were passed over.
struct GraphPlaces {
  using Places = std::vector<std::optional<FileRange>>;

  int64_t attributes = 0;                               // of all nodes
  Places initializers, constants;                       // one for each tensor
  std::vector<int64_t> with_constants, with_subgraphs;  // the numbers of the attributes that hold them
  std::vector<GraphPlaces> subgraphs;
};

bool is_constant(std::string_view op_type) { return op_type == "Constant"; }
bool runs_subgraphs(std::string_view op_type) { return op_type == "If" || op_type == "Loop" || op_type == "Scan"; }

// A reader of a model from its file without the bytes of large initializers and constants, which are passed over, and
// without remarks on nodes, which are often ten times as much as the rest.
class LightReader {
 public:
  using Places = GraphPlaces::Places;

  explicit LightReader(const OpenFile& file) : stream_(file), source_(&stream_, kBlock), in_(&source_) {}

  // Reads the model; gives nothing where the file is no message.
  std::optional<std::string> model() {
    return message([this](uint32_t tag, CodedOutputStream& out) {
      return tag == bytes_tag(onnx::ModelProto::kGraphFieldNumber) ? put(tag, out, [this] { return graph(places_); })
                                                                   : copy(tag, out);
    });
  }

  const GraphPlaces& places() const { return places_; }

 private:
  static constexpr int kBlock = 1 << 14;
  using Message = std::optional<std::string>;

  Message graph(GraphPlaces& places) {
    return message([&](uint32_t tag, CodedOutputStream& out) {
      if (tag == bytes_tag(onnx::GraphProto::kInitializerFieldNumber))
        return put(tag, out, [&] { return tensor(places.initializers); });
      if (tag == bytes_tag(onnx::GraphProto::kNodeFieldNumber)) return put(tag, out, [&] { return node(places); });
      return copy(tag, out);
    });
  }

  // Reads a node. Its attributes are looked into only as far as the operator's name comes before them.
  Message node(GraphPlaces& places) {
    std::string op_type;
    return message([&](uint32_t tag, CodedOutputStream& out) {
      const bool is_remark = tag == bytes_tag(onnx::NodeProto::kMetadataPropsFieldNumber) ||
                             tag == bytes_tag(onnx::NodeProto::kDocStringFieldNumber);
      if (is_remark) return Wire::SkipField(&in_, tag);
      if (tag == bytes_tag(onnx::NodeProto::kOpTypeFieldNumber)) {
        if (!Wire::ReadBytes(&in_, &op_type)) return false;
        write(tag, op_type, out);
        return true;
      }
      if (tag != bytes_tag(onnx::NodeProto::kAttributeFieldNumber)) return copy(tag, out);
      const int64_t number = places.attributes++;
      return is_constant(op_type) || runs_subgraphs(op_type)
                 ? put(tag, out, [&] { return attribute(number, op_type, places); })
                 : copy(tag, out);
    });
  }

  // Reads an attribute field by field, which takes long where it holds many numbers.
  Message attribute(int64_t number, std::string_view op_type, GraphPlaces& places) {
    return message([&](uint32_t tag, CodedOutputStream& out) {
      if (is_constant(op_type) && tag == bytes_tag(onnx::AttributeProto::kTFieldNumber))
        return put(tag, out, [&] {
          places.with_constants.push_back(number);
          return tensor(places.constants);
        });
      if (runs_subgraphs(op_type) && tag == bytes_tag(onnx::AttributeProto::kGFieldNumber))
        return put(tag, out, [&] {
          places.with_subgraphs.push_back(number);
          return graph(places.subgraphs.emplace_back());
        });
      return copy(tag, out);
    });
  }

  Message tensor(Places& places) {
    std::optional<FileRange> place;
    bool is_external = false;
    Message light = message([&](uint32_t tag, CodedOutputStream& out) {
      if (tag == bytes_tag(onnx::TensorProto::kRawDataFieldNumber)) return raw_data(tag, out, place);
      if (tag != Wire::MakeTag(onnx::TensorProto::kDataLocationFieldNumber, Wire::WIRETYPE_VARINT))
        return copy(tag, out);
      uint64_t location = 0;
      if (!in_.ReadVarint64(&location)) return false;
      is_external = location == onnx::TensorProto::EXTERNAL;
      out.WriteTag(tag);
      out.WriteVarint64(location);
      return true;
    });
    places.push_back(is_external ? std::nullopt : place);
    return light;
  }

  // Reads the raw data of a tensor, or passes over it. The last such field of a tensor counts.
  bool raw_data(uint32_t tag, CodedOutputStream& out, std::optional<FileRange>& place) {
    uint32_t length = 0;
    if (!in_.ReadVarint32(&length) || length > static_cast<uint32_t>(in_.BytesUntilLimit())) return false;
    place.reset();
    if (length >= kLarge) {
      place = {in_.CurrentPosition(), length};
      return in_.Skip(static_cast<int>(length));
    }
    std::string bytes;
    if (!in_.ReadString(&bytes, static_cast<int>(length))) return false;
    write(tag, bytes, out);
    return true;
  }

  // Reads a message, and gives the fields that treat(tag, out) makes of its own.
  template <typename Treat>
  Message message(const Treat& treat) {
    std::string result;
    {
      google::protobuf::io::StringOutputStream string(&result);
      CodedOutputStream out(&string);
      while (const uint32_t tag = in_.ReadTag()) {
        if (!treat(tag, out)) return {};
      }
    }
    return in_.ConsumedEntireMessage() ? std::optional(std::move(result)) : std::nullopt;
  }

  bool copy(uint32_t tag, CodedOutputStream& out) { return Wire::SkipField(&in_, tag, &out); }

  // Writes a field whose content is what read() makes of it.
  template <typename Read>
  bool put(uint32_t tag, CodedOutputStream& out, const Read& read) {
    uint32_t length = 0;
    if (!in_.ReadVarint32(&length)) return false;
    const int rest = in_.BytesUntilLimit();  // -1 where the size of the whole stream is not known
    if (length > static_cast<uint32_t>(rest < 0 ? INT_MAX : rest)) return false;
    const auto [around, depth_left] = in_.IncrementRecursionDepthAndPushLimit(static_cast<int>(length));
    const Message content = depth_left >= 0 ? read() : std::nullopt;
    const bool whole = in_.BytesUntilLimit() == 0;
    in_.DecrementRecursionDepthAndPopLimit(around);
    if (!content || !whole) return false;
    write(tag, *content, out);
    return true;
  }

  static void write(uint32_t tag, const std::string& content, CodedOutputStream& out) {
    out.WriteTag(tag);
    out.WriteVarint32(static_cast<uint32_t>(content.size()));
    out.WriteString(content);
  }

  FileStream stream_;
  google::protobuf::io::CopyingInputStreamAdaptor source_;
  CodedInputStream in_;
  GraphPlaces places_;
};

bool parse(const OpenFile& file, onnx::ModelProto& model) {
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::ssize(bytes), bytes.data());
  return model.ParseFromString(bytes);
}

// The tensors and subgraphs that LightReader looks into, in its order.
struct GraphParts {
  std::vector<const onnx::TensorProto*> initializers, constants;
  std::vector<const onnx::GraphProto*> subgraphs;
  std::vector<int64_t> with_constants, with_subgraphs;
};

GraphParts parts_of(const onnx::GraphProto& graph) {
  GraphParts parts;
  for (const auto& tensor : graph.initializer()) parts.initializers.push_back(&tensor);
  int64_t number = 0;
  for (const auto& node : graph.node()) {
    const bool is_standard = canonical_domain(node.domain()).empty();
    for (const auto& attribute : node.attribute()) {
      if (is_standard && is_constant(node.op_type()) && attribute.has_t()) {
        parts.constants.push_back(&attribute.t());
        parts.with_constants.push_back(number);
      }
      if (is_standard && runs_subgraphs(node.op_type()) && attribute.has_g()) {
        parts.subgraphs.push_back(&attribute.g());
        parts.with_subgraphs.push_back(number);
      }
      ++number;
    }
  }
  return parts;
}

// Notes where a graph's tensors lie. Gives false where the graph has other parts than were read: its message came in
// several pieces, which are merged, or a node tells last of what operator, or of what domain, it is.
bool note(const onnx::GraphProto& graph, const GraphPlaces& places, OwnFile& file) {
  const GraphParts parts = parts_of(graph);
  const auto note_all = [&](const std::vector<const onnx::TensorProto*>& tensors,
                            const GraphPlaces::Places& of_tensors) {
    for (size_t i = 0; i < tensors.size() && tensors.size() == of_tensors.size(); ++i) {
      if (of_tensors[i]) file.tensors[tensors[i]] = *of_tensors[i];
    }
    return tensors.size() == of_tensors.size();
  };
  return parts.with_constants == places.with_constants && parts.with_subgraphs == places.with_subgraphs &&
         note_all(parts.initializers, places.initializers) && note_all(parts.constants, places.constants) &&
         std::ranges::equal(parts.subgraphs, places.subgraphs,
                            [&](const onnx::GraphProto* subgraph, const GraphPlaces& of_subgraph) {
                              return note(*subgraph, of_subgraph, file);
                            });
}

bool parse_light(OwnFile& file, onnx::ModelProto& model) {
  LightReader reader(file.file);
  const auto message = reader.model();
  if (!message || !model.ParseFromString(*message)) return false;
  if (note(model.graph(), reader.places(), file)) return true;
  file.tensors.clear();
  return parse(file.file, model);
}

// Puts the bytes that were passed over into a copy of a graph.
void fill(onnx::GraphProto& copy, const onnx::GraphProto& graph, const ExternalData& external) {
  const auto fill_tensor = [&](onnx::TensorProto& to, const onnx::TensorProto& tensor) {
    if (external.in_own_file(tensor)) to.set_raw_data(std::string(external.read(tensor, 0).view));
  };
  for (int i = 0; i < graph.initializer_size(); ++i) fill_tensor(*copy.mutable_initializer(i), graph.initializer(i));
  for (int i = 0; i < graph.node_size(); ++i) {
    for (int j = 0; j < graph.node(i).attribute_size(); ++j) {
      const onnx::AttributeProto& attribute = graph.node(i).attribute(j);
      onnx::AttributeProto& to = *copy.mutable_node(i)->mutable_attribute(j);
      if (attribute.has_t()) fill_tensor(*to.mutable_t(), attribute.t());
      if (attribute.has_g()) fill(*to.mutable_g(), attribute.g(), external);
    }
  }
}

std::shared_ptr<OwnFile> own_file(const fs::path& path) {
  try {
    auto file = std::make_shared<OwnFile>(path);
    check_size(static_cast<uintmax_t>(file->file.size()), path.string());
    return file;
  } catch (const FileError& error) {
    throw InvalidModelError("cannot open the model file " + path.string() + ": " + error.what());
  }
}

// Gives the directory that the model's file really lies in, where the path to it is a link.
std::shared_ptr<const Descriptor> linked_directory(const fs::path& path, const OpenFile& file) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error || !fs::is_symlink(path)) return {};
  try {
    LocatedFile found = located("/", real.relative_path(), false);
    if (found.file.descriptor().identity() != file.descriptor().identity()) return {};
    return std::make_shared<const Descriptor>(std::move(found.above.back()));
  } catch (const FileError&) {
    return {};
  }
}

std::shared_ptr<ModelFile> with_data_in(const fs::path& directory, std::shared_ptr<const Descriptor> linked_directory,
                                        std::shared_ptr<const OwnFile> file, const ExternalReader& external) {
  // make_shared would move the external data, which has a mutex.
  return std::shared_ptr<ModelFile>(  // NOLINT(modernize-make-shared)
      new ModelFile{{}, ExternalData(directory, std::move(linked_directory), std::move(file), external)});
}

}  // namespace

std::shared_ptr<const ModelFile> ModelFile::from_path(const fs::path& path, const fs::path& directory,
                                                      const ExternalReader& external) {
  need_memory_reserve();
  const auto file = own_file(path);
  if (file->file.size() == 0) throw InvalidModelError("the model file " + path.string() + " is empty");
  const bool is_large = file->file.size() >= static_cast<int64_t>(kLarge);
  const auto own = is_large ? file : nullptr;
  const auto model = directory.empty() ? with_data_in(fs::absolute(path).parent_path(),
                                                      linked_directory(path, file->file), own, external)
                                       : with_data_in(directory, nullptr, own, external);
  try {
    const bool parsed = is_large ? parse_light(*file, model->proto) : parse(file->file, model->proto);
    if (!parsed) throw InvalidModelError(no_model(path.string() + " is", beginning_of(file->file)));
  } catch (const FileError& error) {
    throw InvalidModelError("cannot read the model file " + path.string() + ": " + error.what());
  }
  order_nodes(model->proto);
  return model;
}

std::shared_ptr<const ModelFile> ModelFile::from_bytes(std::string_view bytes, const fs::path& directory,
                                                       const ExternalReader& external) {
  need_memory_reserve();
  check_size(bytes.size(), "the model given");
  const auto model = with_data_in(directory, nullptr, nullptr, external);
  if (!model->proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw InvalidModelError(no_model("the bytes given are", bytes));
  }
  order_nodes(model->proto);
  return model;
}

std::string ModelFile::serialized() const {
  onnx::ModelProto whole = proto;
  if (whole.has_graph()) fill(*whole.mutable_graph(), proto.graph(), external);
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
