#include "translate/node_rules.h"

#include <onnx/onnx-ml.pb.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <span>
#include <utility>

namespace onnxtorch {
namespace {

// --- Types of inputs ---

// Tells whether a type has this name. A sparse tensor comes as a dense one.
bool is_named(const ValueType& type, std::string_view text) {
  constexpr std::string_view kSparse = "sparse_";
  if (text.starts_with(kSparse)) text.remove_prefix(kSparse.size());
  if (type.kind != ValueType::Kind::Tensor) return ValueType::parse(text) == type;
  const std::string_view name = info(type.element).name;
  return text.starts_with("tensor(") && text.size() == name.size() + 8 && text.substr(7, name.size()) == name;
}

std::string listed(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

// Gives the types that a formal parameter takes.
std::span<const std::string_view> allowed_types(const OperatorSchema& schema, const FormalParameter& formal) {
  const auto found = std::ranges::find(schema.constraints, formal.type, &TypeConstraint::parameter);
  return found == schema.constraints.end() ? std::span(&formal.type, 1) : found->allowed;
}

std::string name_of(const char* kind, const FormalParameter& formal) {
  return std::string("the ") + kind + " \"" + std::string(formal.name) + "\"";
}

bool allows(const OperatorSchema& schema, const FormalParameter& formal, const ValueType& type) {
  return std::ranges::any_of(allowed_types(schema, formal),
                             [&](std::string_view name) { return is_named(type, name); });
}

using Formals = std::span<const FormalParameter> OperatorSchema::*;  // a schema's inputs, or its outputs

// Tells whether the newest version takes a type. Versions add types to what an operator takes, and leave its meaning,
// so a type of the newest one is as good.
bool allows_later(const OperatorSchema& schema, Formals formals, size_t i, const ValueType& type) {
  const OperatorSchema* const newest = find_schema(schema.domain, schema.name, std::numeric_limits<int>::max());
  const FormalParameter* const formal = formal_at(newest->*formals, i);
  return formal && allows(*newest, *formal, type);
}

void check_type(const NodeView& n, Formals formals, size_t i, const ValueType& type) {
  const OperatorSchema& schema = *n.schema();
  const FormalParameter* const formal = formal_at(schema.*formals, i);
  if (!formal || !type.known() || allows(schema, *formal, type) || allows_later(schema, formals, i, type)) return;
  n.fail(name_of(formals == &OperatorSchema::inputs ? "input" : "output", *formal) + " is of type " + type.str() +
         "; allowed are: " + listed(allowed_types(schema, *formal)));
}

bool is_alone(const FormalParameter& formal) { return formal.option == FormalOption::Variadic && !formal.homogeneous; }

void check_types(const NodeView& n) {
  std::vector<std::pair<const FormalParameter*, const ValueType*>> seen;  // the first of each type parameter
  for (size_t i = 0; i < n.input_count(); ++i) {
    const FormalParameter* const formal = formal_at(n.schema()->inputs, i);
    if (!formal) continue;
    if (!n.has(i)) {
      const bool is_argument = n.schema()->open_attributes;  // arguments of ATen's operators may be optional
      if (formal->option != FormalOption::Optional && !is_argument) n.fail(name_of("input", *formal) + " is missing");
      continue;
    }
    const ValueType& type = n.inputs()[i].type;
    if (!type.known()) continue;
    check_type(n, &OperatorSchema::inputs, i, type);
    if (is_alone(*formal)) continue;
    const auto same = [&](const auto& first) { return first.first->type == formal->type; };
    const auto first = std::ranges::find_if(seen, same);
    if (first == seen.end()) {
      seen.emplace_back(formal, &type);
    } else if (!(*first->second == type)) {
      n.fail(name_of("input", *formal) + " is of type " + type.str() + ", but " + name_of("input", *first->first) +
             " of " + first->second->str() + "; both are of type " + std::string(formal->type));
    }
  }
}

// --- Numbers in attributes ---

struct Bounds {
  int64_t least, most;
};

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // so that sums and products of two do not overflow
constexpr int64_t kDimensions = 64;                             // the most that a tensor may have, in ATen
constexpr Bounds kAxis{-kDimensions - 1, kDimensions}, kSize{1, kMost}, kCount{0, kMost}, kAny{-kMost, kMost};

// Gives the limits of attributes by their names, which mean the same in all operators.
const std::map<std::string_view, Bounds>& bounds_by_name() {
  static const std::map<std::string_view, Bounds> bounds{
      {"K", kCount},
      {"N", kCount},
      {"Nkv", kCount},
      {"Nq", kCount},
      {"axes", kAxis},
      {"axis", kAxis},
      {"batch_axis", kAxis},
      {"batch_dims", {0, kDimensions}},
      {"block_size", kCount},
      {"blocksize", kSize},
      {"dilation", kSize},
      {"dilations", kSize},
      {"group", kSize},
      {"groups", kSize},
      {"hidden_size", kSize},
      {"inputdimensions", kCount},
      {"kernel_shape", kSize},
      {"kv_num_heads", kSize},
      {"left_window_size", {-1, kMost}},
      {"local_window_size", {-1, kMost}},
      {"max_distance", kSize},
      {"max_gram_length", kSize},
      {"max_map", kCount},
      {"max_skip_count", kCount},
      {"min_gram_length", kSize},
      {"num_branches", kCount},
      {"ndim", {1, 3}},
      {"num_groups", kSize},
      {"num_heads", kCount},
      {"num_outputs", kSize},
      {"num_scan_inputs", kSize},
      {"offset_group", kSize},
      {"output_height", kSize},
      {"output_padding", kCount},
      {"output_shape", kCount},
      {"output_width", kSize},
      {"paddings", kAny},
      {"pads", kAny},
      {"perm", {0, kDimensions - 1}},
      {"pooled_shape", kSize},
      {"q_num_heads", kSize},
      {"qkv_hidden_sizes", kCount},
      {"right_window_size", {-1, kMost}},
      {"rotary_embedding_dim", kCount},
      {"rotary_offset", kCount},
      {"sample_size", kCount},
      {"sampling_ratio", kCount},
      {"scan_input_axes", kAxis},
      {"scan_output_axes", kAxis},
      {"size", kSize},
      {"split", kCount},
      {"state_window", {0, 8}},
      {"vectors_per_class", kCount},
      {"strides", kSize},
      {"time_axis", kAxis},
      {"window", kCount},
  };
  return bounds;
}

void check_number(const NodeView& n, const std::string& name, int64_t number, const Bounds& bounds) {
  if (bounds.least <= number && number <= bounds.most) return;
  n.fail("the attribute \"" + name + "\" takes numbers from " + std::to_string(bounds.least) + " to " +
         std::to_string(bounds.most) + ", not " + std::to_string(number));
}

void check_attributes(const NodeView& n) {
  const auto& all = bounds_by_name();
  for (const onnx::AttributeProto& attribute : n.proto().attribute()) {
    const auto bounds = all.find(attribute.name());
    const AttributeSchema* const schema = n.schema()->find_attribute(attribute.name());
    if (bounds == all.end() || !schema) continue;
    if (schema->type == onnx::AttributeProto::INT) {
      check_number(n, attribute.name(), attribute.i(), bounds->second);
    }
    for (const int64_t number : attribute.ints()) check_number(n, attribute.name(), number, bounds->second);
  }
}

}  // namespace

void check_node(const NodeView& n) {
  check_types(n);
  check_attributes(n);
}

void check_outputs(const NodeView& n, const Values& outputs) {
  constexpr std::array<std::string_view, 4> kNames{"dtype", "to", "output_dtype", "output_datatype"};
  if (std::ranges::none_of(kNames, [&](std::string_view name) { return n.has_attribute(name); })) return;
  for (size_t i = 0; i < outputs.size(); ++i) check_type(n, &OperatorSchema::outputs, i, outputs[i].type);
}

}  // namespace onnxtorch
