// The references that an attribute inside a function may make to one of the function's own.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include <functional>
#include <string>

namespace onnxtorch {

using AttributeLookup = std::function<const onnx::AttributeProto*(const std::string& name)>;

// Gives the function with each reference replaced by what the caller gives, or by the function's own default; a
// reference to neither goes, so that the operator's default holds.
onnx::FunctionProto resolve_attribute_references(onnx::FunctionProto function, const AttributeLookup& given);

}  // namespace onnxtorch
