// The inputs and outputs of a model, as it declares them.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "onnx_torch/types.h"

namespace onnxtorch {

ValueType value_type(const onnx::TypeProto& type);

// The option `shapes`: the sizes of open dimensions, by their symbols or by their inputs' axes, as "x[0]".
using FixedSizes = std::map<std::string, int64_t>;

// Gives the declared dimensions of a tensor that has a shape; nothing for others.
std::optional<std::vector<Dim>> declared_dims(const onnx::TypeProto& type, const FixedSizes& sizes = {});

// Gives the inputs, or the outputs, that a model declares. Throws InvalidModelError where an input has no type.
std::vector<InputSpec> declared_inputs(const onnx::ModelProto& model, const FixedSizes& sizes = {});
std::vector<OutputSpec> declared_outputs(const onnx::ModelProto& model, const FixedSizes& sizes = {});

// Tells whether dimensions with this one's symbol have one size. Some exporters write "?" for each size that they do
// not know.
bool has_name(const Dim& dim);

// Throws InputError where a size is negative, of a dimension that no input has, or not the one that the input has.
void check_sizes(const FixedSizes& sizes, const std::vector<InputSpec>& inputs);

}  // namespace onnxtorch
