// The script of a kernel, for operands that the kernel leaves to it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace onnxtorch {

// Puts the results of the script in the place of its arguments. It is kept under the name `onnx_torch::…`.
inline void call_script(const char* name, std::vector<c10::IValue>& stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
}

}  // namespace onnxtorch
