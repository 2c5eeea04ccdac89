// The choice of the steps whose graphs or plans are printed, by ONNX_TORCH_DUMP.
#pragma once

#include <string>

namespace onnxtorch {

// Tells whether ONNX_TORCH_DUMP names the step, a pass or "plan", in its list with commas; "all" names each.
bool is_dumped(const std::string& step);

}  // namespace onnxtorch
