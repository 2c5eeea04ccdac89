// One argument of Translator::call.
#pragma once

#include "graph/value.h"
#include "onnx_torch/arg.h"

namespace onnxtorch {

using Arg = BasicArg<Value>;

}  // namespace onnxtorch
