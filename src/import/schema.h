// The operator schemas of the installed onnx package, as a table made at build time (cmake/generate_schemas.py).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace onnxtorch {

enum class FormalOption : uint8_t { Single, Optional, Variadic };

struct FormalParameter {
  std::string_view name;
  std::string_view type;  // a type parameter such as "T", or a fixed type such as "tensor(int64)"
  FormalOption option;
  bool homogeneous;  // the arguments of a variadic parameter are all of one type
};

struct AttributeSchema {
  std::string_view name;
  int type;  // AttributeProto.AttributeType
  bool required;
  std::string_view default_value;  // a serialized AttributeProto; empty where there is none
};

struct TypeConstraint {
  std::string_view parameter;
  std::span<const std::string_view> allowed;
};

struct FunctionBody {
  int opset_version;
  std::string_view function;  // a serialized FunctionProto
};

struct OperatorSchema {
  std::string_view domain;  // "" is ai.onnx
  std::string_view name;
  int since_version;
  bool deprecated;
  bool open_attributes;  // attributes beyond those it names are allowed
  int min_inputs, max_inputs, min_outputs, max_outputs;
  std::span<const FormalParameter> inputs;
  std::span<const FormalParameter> outputs;
  std::span<const AttributeSchema> attributes;
  std::span<const TypeConstraint> constraints;
  std::span<const FunctionBody> bodies;  // context-independent ones only

  const AttributeSchema* find_attribute(std::string_view attribute) const;
};

// Gives every version of every operator, ordered by domain, name, since_version.
std::span<const OperatorSchema> all_schemas();

// Gives the operators of early releases that the standard has no schema for: cmake/experimental_schemas.py. Ordered
// likewise.
std::span<const OperatorSchema> experimental_schemas();

// Gives the operators that onnxruntime adds: its own domains, and its own names in the standard's
// (cmake/onnxruntime_schemas.json). Ordered likewise.
std::span<const OperatorSchema> onnxruntime_schemas();

// Gives the operators that other projects' exporters write: cmake/community_schemas.py. Ordered likewise.
std::span<const OperatorSchema> community_schemas();

// Finds the version in force at `opset_version`, else the experimental operator of that name, else onnxruntime's, else
// another project's; gives null where the operator does not exist yet, or not at all.
const OperatorSchema* find_schema(std::string_view domain, std::string_view op, int64_t opset_version);

// Gives the newest opset version of a domain of the standard; 0 for other domains.
int newest_opset(std::string_view domain);

}  // namespace onnxtorch
