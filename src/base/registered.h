// Operators of this library's own, which passes put into graphs.
#pragma once

#include <torch/library.h>

namespace onnxtorch {

// Defines operators, for as long as the result lives.
inline torch::Library registered(void (*define)(torch::Library& m)) {
  torch::Library m(torch::Library::FRAGMENT, "onnx_torch", {}, __FILE__, __LINE__);
  define(m);
  return m;
}

}  // namespace onnxtorch
