#include "translate/attribute_references.h"

namespace onnxtorch {
namespace {

void resolve(onnx::NodeProto& node, const AttributeLookup& look_up) {
  google::protobuf::RepeatedPtrField<onnx::AttributeProto> resolved;
  for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.ref_attr_name().empty()) {
      if (attribute.has_g()) {
        for (onnx::NodeProto& inner : *attribute.mutable_g()->mutable_node()) resolve(inner, look_up);
      }
      *resolved.Add() = std::move(attribute);
    } else if (const onnx::AttributeProto* given = look_up(attribute.ref_attr_name())) {
      onnx::AttributeProto* copy = resolved.Add();
      *copy = *given;
      copy->set_name(attribute.name());
    }
  }
  node.mutable_attribute()->Swap(&resolved);
}

}  // namespace

onnx::FunctionProto resolve_attribute_references(onnx::FunctionProto function, const AttributeLookup& given) {
  const AttributeLookup look_up = [&](const std::string& name) -> const onnx::AttributeProto* {
    if (const auto* attribute = given(name)) return attribute;
    for (const auto& attribute : function.attribute_proto()) {
      if (attribute.name() == name) return &attribute;
    }
    return nullptr;
  };
  for (onnx::NodeProto& node : *function.mutable_node()) resolve(node, look_up);
  return function;
}

}  // namespace onnxtorch
