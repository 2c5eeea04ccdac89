// The conversion of inputs and attributes to arguments of a TorchScript function, by the type of its parameter.
#pragma once

#include <ATen/core/jit_type.h>

#include "translate/translator.h"

namespace onnxtorch {

Arg argument_of_input(const NodeView& n, size_t i, const c10::TypePtr& parameter);
Arg argument_of_attribute(const NodeView& n, const std::string& name, const c10::TypePtr& parameter);

// Gives the type that an optional parameter has where it is given.
c10::TypePtr without_optional(const c10::TypePtr& type);

}  // namespace onnxtorch
