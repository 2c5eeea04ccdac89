// The rows that a model can take as the past, besides those that are there.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include <vector>

#include "language/cache.h"
#include "onnx_torch/types.h"

namespace onnxtorch {

// Tells the form for a model that takes padding at the left.
PastForm past_form_with_padding(const std::vector<InputSpec>& inputs, const Layout& layout);
// Tells the form for one that does not.
PastForm past_form_without_padding(const onnx::GraphProto& graph, const Layout& layout);

}  // namespace onnxtorch
