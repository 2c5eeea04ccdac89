#include "mutate.h"

#include <onnx_fuzz.pb.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "messages.h"

namespace onnxtorch::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();
constexpr std::array<int64_t, 24> kIntegers{0,
                                            1,
                                            -1,
                                            2,
                                            -2,
                                            3,
                                            4,
                                            7,
                                            8,
                                            16,
                                            17,
                                            64,
                                            127,
                                            255,
                                            256,
                                            65536,
                                            (int64_t{1} << 31) - 1,
                                            int64_t{1} << 31,
                                            -(int64_t{1} << 31),
                                            int64_t{1} << 32,
                                            int64_t{1} << 62,
                                            -(int64_t{1} << 62),
                                            kHighest,
                                            kLowest};
constexpr std::array<float, 12> kFloats{0, -0.0F, 1, -1, 0.5F, 2, 1e38F, -1e38F, 1e-40F, INFINITY, -INFINITY, NAN};
// Modes and such of many operators; texts that are none.
const std::array<std::string, 24> kTexts{
    "",       "linear",  "nearest", "cubic", "bilinear",  "SAME_UPPER", "SAME_LOWER",    "VALID",
    "NOTSET", "reflect", "edge",    "wrap",  "constant",  "forward",    "reverse",       "bidirectional",
    "sum",    "add",     "tanh",    "none",  "ij,jk->ik", "...ij->...", "\xff\xfe\x00z", "x"};

int64_t integer(int64_t before, Random& random) {
  switch (random.below(6)) {
    case 0:
      return static_cast<int64_t>(static_cast<uint64_t>(before) + 1);
    case 1:
      return static_cast<int64_t>(static_cast<uint64_t>(before) - 1);
    case 2:
      return static_cast<int64_t>(0 - static_cast<uint64_t>(before));
    case 3:
      return random.below(12);
    default:
      return random.of(kIntegers);
  }
}

// --- Any message -----------------------------------------------------------------------------------------------------

void change_scalar(Message& message, const FieldDescriptor& field, Random& random) {
  const Reflection& r = *message.GetReflection();
  const bool many = field.is_repeated();
  const int at = many ? random.below(r.FieldSize(message, &field)) : 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t x = integer(many ? r.GetRepeatedInt64(message, &field, at) : r.GetInt64(message, &field), random);
      return many ? r.SetRepeatedInt64(&message, &field, at, x) : r.SetInt64(&message, &field, x);
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      const int64_t before = many ? r.GetRepeatedInt32(message, &field, at) : r.GetInt32(message, &field);
      const auto x = static_cast<int32_t>(integer(before, random));
      return many ? r.SetRepeatedInt32(&message, &field, at, x) : r.SetInt32(&message, &field, x);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const auto x = static_cast<uint64_t>(random.of(kIntegers));
      return many ? r.SetRepeatedUInt64(&message, &field, at, x) : r.SetUInt64(&message, &field, x);
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const float x = random.of(kFloats);
      return many ? r.SetRepeatedFloat(&message, &field, at, x) : r.SetFloat(&message, &field, x);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double x = random.of(kFloats);
      return many ? r.SetRepeatedDouble(&message, &field, at, x) : r.SetDouble(&message, &field, x);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* const values = field.enum_type();
      const auto* const value = values->value(random.below(values->value_count()));
      return many ? r.SetRepeatedEnum(&message, &field, at, value) : r.SetEnum(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = many ? r.GetRepeatedString(message, &field, at) : r.GetString(message, &field);
      if (random.one_in(3)) {
        text = random.of(kTexts);
      } else {
        mutate_bytes(text, random.of(kTexts), random);
      }
      return many ? r.SetRepeatedString(&message, &field, at, text) : r.SetString(&message, &field, text);
    }
    default:
      return;
  }
}

// Whatever the message is: changes a field, takes it out, or an element of it, or repeats or moves that.
void change_any(Message& message, Random& random) {
  const Reflection& r = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  r.ListFields(message, &fields);
  if (fields.empty()) return;
  const FieldDescriptor& field = *random.of(fields);
  const bool is_message = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  const int kind = random.below(6);
  if (field.is_repeated()) {
    const int size = r.FieldSize(message, &field);
    if (kind == 0) return r.RemoveLast(&message, &field);
    if (kind == 1) return r.SwapElements(&message, &field, random.below(size), random.below(size));
    if (kind == 2 && is_message) {
      r.AddMessage(&message, &field)->CopyFrom(r.GetRepeatedMessage(message, &field, random.below(size)));
      return;
    }
    if (kind == 2 && field.cpp_type() == FieldDescriptor::CPPTYPE_INT64)
      return r.AddInt64(&message, &field, random.of(kIntegers));
    if (kind == 2 && field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT)
      return r.AddFloat(&message, &field, random.of(kFloats));
    if (kind == 2 && field.cpp_type() == FieldDescriptor::CPPTYPE_STRING)
      return r.AddString(&message, &field, random.of(kTexts));
  }
  if (kind == 0 || (kind == 3 && random.one_in(4))) return r.ClearField(&message, &field);
  if (!is_message) change_scalar(message, field, random);
}

// --- Nodes -----------------------------------------------------------------------------------------------------------

std::vector<std::string> names_in(onnx_fuzz::ModelProto& model) {
  std::vector<std::string> names{""};
  for (const auto* node : all_of<onnx_fuzz::NodeProto>(model)) {
    names.insert(names.end(), node->input().begin(), node->input().end());
    names.insert(names.end(), node->output().begin(), node->output().end());
  }
  for (const auto* value : all_of<onnx_fuzz::ValueInfoProto>(model)) names.push_back(value->name());
  for (const auto* tensor : all_of<onnx_fuzz::TensorProto>(model)) names.push_back(tensor->name());
  return names;
}

void change_names(google::protobuf::RepeatedPtrField<std::string>& list, const std::vector<std::string>& names,
                  Random& random) {
  const int kind = random.below(4), size = list.size();
  if (kind == 0 || size == 0) {
    list.Add(std::string(random.of(names)));
  } else if (kind == 1) {
    list.RemoveLast();
  } else if (kind == 2) {
    list.SwapElements(random.below(size), random.below(size));
  } else {
    *list.Mutable(random.below(size)) = random.of(names);
  }
}

void change_node(onnx_fuzz::ModelProto& model, const onnx_fuzz::ModelProto& other, Random& random) {
  const auto nodes = all_of<onnx_fuzz::NodeProto>(model);
  if (nodes.empty()) return;
  onnx_fuzz::NodeProto& node = *random.of(nodes);
  onnx_fuzz::ModelProto copy = other;
  const auto others = all_of<onnx_fuzz::NodeProto>(copy);
  switch (random.below(7)) {
    case 0:
    case 1:
      return change_names(*node.mutable_input(), names_in(model), random);
    case 2:
      return change_names(*node.mutable_output(), names_in(model), random);
    case 3:  // another operator
      if (others.empty()) return;
      node.set_op_type(random.of(others)->op_type());
      node.set_domain(random.of(others)->domain());
      return;
    case 4: {  // an attribute of another node
      const onnx_fuzz::NodeProto& from = *random.of(others.empty() ? nodes : others);
      if (from.attribute_size() > 0) *node.add_attribute() = from.attribute(random.below(from.attribute_size()));
      return;
    }
    default:
      if (node.attribute_size() > 0)
        return change_any(*node.mutable_attribute(random.below(node.attribute_size())), random);
      return change_any(node, random);
  }
}

void change_graph(onnx_fuzz::ModelProto& model, const onnx_fuzz::ModelProto& other, Random& random) {
  const auto graphs = all_of<onnx_fuzz::GraphProto>(model);
  if (graphs.empty()) return;
  onnx_fuzz::GraphProto& graph = *random.of(graphs);
  const int size = graph.node_size();
  onnx_fuzz::ModelProto copy = other;
  const auto others = all_of<onnx_fuzz::NodeProto>(copy);
  switch (random.below(6)) {
    case 0:
      if (size > 1) graph.mutable_node()->SwapElements(random.below(size), random.below(size));
      return;
    case 1:
      if (size > 0) graph.mutable_node()->DeleteSubrange(random.below(size), 1);
      return;
    case 2:
      if (size > 0) *graph.add_node() = onnx_fuzz::NodeProto(graph.node(random.below(size)));
      return;
    case 3: {  // a node of the other model, that reads and gives what there is
      if (others.empty()) return;
      onnx_fuzz::NodeProto& node = *graph.add_node() = *random.of(others);
      const auto names = names_in(model);
      for (std::string& name : *node.mutable_input()) name = random.of(names);
      if (node.output_size() > 0 && graph.output_size() > 0)
        graph.mutable_output(random.below(graph.output_size()))->set_name(node.output(0));
      return;
    }
    case 4:  // a node within a function, or a function that calls itself
      if (size > 0) {
        auto& function = *model.add_functions();
        onnx_fuzz::NodeProto& node = *graph.mutable_node(random.below(size));
        function.set_name("f");
        function.set_domain("fuzz");
        *function.mutable_input() = node.input();
        *function.mutable_output() = node.output();
        *function.mutable_opset_import() = model.opset_import();
        *function.add_node() = node;
        node.clear_attribute();
        node.set_domain("fuzz");
        node.set_op_type("f");
        if (random.one_in(4)) *function.add_node() = node;
      }
      return;
    default:
      return change_any(graph, random);
  }
}

// --- Tensors and types -----------------------------------------------------------------------------------------------

void change_tensor(onnx_fuzz::TensorProto& tensor, Random& random) {
  switch (random.below(6)) {
    case 0:
      tensor.set_data_type(random.below(30));
      return;
    case 1:
      if (tensor.dims_size() > 0) return tensor.set_dims(random.below(tensor.dims_size()), random.of(kIntegers));
      return tensor.add_dims(random.below(4));
    case 2:
      if (tensor.dims_size() > 0) return tensor.mutable_dims()->RemoveLast();
      return tensor.add_dims(1);
    case 3:
    case 4: {  // another number
      std::string& raw = *tensor.mutable_raw_data();
      const size_t size = random.below(2) ? 8 : 4;
      if (raw.size() < size) return change_any(tensor, random);
      const int64_t whole = random.of(kIntegers);
      const float part = random.of(kFloats);
      const char* const from = size == 8 ? reinterpret_cast<const char*>(&whole) : reinterpret_cast<const char*>(&part);
      std::copy_n(from, size, raw.data() + random.below(raw.size() / size) * size);
      return;
    }
    default:
      return change_any(tensor, random);
  }
}

void change_type(onnx_fuzz::ValueInfoProto& value, Random& random) {
  auto& type = *value.mutable_type()->mutable_tensor_type();
  auto& dims = *type.mutable_shape()->mutable_dim();
  switch (random.below(5)) {
    case 0:
      type.set_elem_type(random.below(30));
      return;
    case 1:
      dims.Add()->set_dim_value(random.below(4));
      return;
    case 2:
      if (!dims.empty()) dims.RemoveLast();
      return;
    case 3:
      if (!dims.empty()) dims.Mutable(random.below(dims.size()))->set_dim_value(random.of(kIntegers));
      return;
    default:
      if (!dims.empty()) dims.Mutable(random.below(dims.size()))->set_dim_param("n");
  }
}

// --- What official cases leave out -----------------------------------------------------------------------------------

// Weights become constants: initializers that nothing else is fed for. Only then are they laid out once.
void make_constants(onnx_fuzz::GraphProto& graph) {
  std::set<std::string> known;
  for (const onnx_fuzz::TensorProto& tensor : graph.initializer()) known.insert(tensor.name());
  auto& inputs = *graph.mutable_input();
  const auto is_constant = [&](const onnx_fuzz::ValueInfoProto& input) { return known.contains(input.name()); };
  if (!inputs.empty()) inputs.erase(std::remove_if(inputs.begin() + 1, inputs.end(), is_constant), inputs.end());
}

// Sizes become open: known only to who feeds the inputs.
void open_sizes(onnx_fuzz::GraphProto& graph, Random& random) {
  char name = 'a';
  for (onnx_fuzz::ValueInfoProto& input : *graph.mutable_input()) {
    if (!input.type().has_tensor_type()) continue;
    for (auto& dim : *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
      if (random.below(2)) dim.set_dim_param(std::string(1, name++));
  }
}

void change(onnx_fuzz::ModelProto& model, const onnx_fuzz::ModelProto& other, Random& random) {
  switch (random.below(8)) {
    case 0:
    case 1:
    case 2:
      return change_node(model, other, random);
    case 3:
      return change_graph(model, other, random);
    case 4: {
      const auto tensors = all_of<onnx_fuzz::TensorProto>(model);
      if (!tensors.empty()) change_tensor(*random.of(tensors), random);
      return;
    }
    case 5: {
      const auto values = all_of<onnx_fuzz::ValueInfoProto>(model);
      if (!values.empty()) change_type(*random.of(values), random);
      return;
    }
    case 6:
      if (model.opset_import_size() > 0)
        model.mutable_opset_import(random.below(model.opset_import_size()))->set_version(random.below(28));
      return;
    default: {
      std::vector<Message*> all;
      collect(model, all);
      return change_any(*random.of(all), random);
    }
  }
}

}  // namespace

std::string mutate_model(const std::string& bytes, const std::string& other, Random& random) {
  onnx_fuzz::ModelProto model, second;
  if (!model.ParseFromString(bytes) || !second.ParseFromString(other)) return bytes;
  if (random.one_in(3)) make_constants(*model.mutable_graph());
  if (random.one_in(6)) open_sizes(*model.mutable_graph(), random);
  for (int64_t count = 1 + random.below(random.one_in(4) ? 8 : 2); count > 0; --count) change(model, second, random);
  return model.SerializeAsString();
}

void mutate_bytes(std::string& bytes, const std::string& other, Random& random) {
  for (int64_t count = 1 + random.below(4); count > 0; --count) {
    const size_t at = bytes.empty() ? 0 : random.below(bytes.size()), left = bytes.size() - at;
    switch (random.below(5)) {
      case 0:
        if (left > 0) bytes[at] = static_cast<char>(random.bits());
        break;
      case 1:
        if (left > 0) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
        break;
      case 2:
        bytes.erase(at, random.below(left + 1));
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, random.below(std::min<size_t>(left, 64) + 1)));
        break;
      default: {
        if (other.empty()) break;
        const size_t from = random.below(other.size());
        bytes.insert(at, other.substr(from, random.below(std::min<size_t>(other.size() - from, 64) + 1)));
      }
    }
  }
}

}  // namespace onnxtorch::fuzz
