// One argument of Translator::call.
#pragma once

#include "onnx_torch/arg.h"
#include "translate/value.h"

namespace onnxtorch {

using Arg = BasicArg<Value>;

}  // namespace onnxtorch
