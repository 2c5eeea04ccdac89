#pragma once

#include <string>

namespace onnxtorch {

// Whether ONNX_TORCH_DUMP names the step, a pass or "plan", among others, separated by commas; "all" is each.
bool is_dumped(const std::string& step);

}  // namespace onnxtorch
