// What leaves the library is an Error.
#pragma once

#include <exception>

#include "onnx_torch/error.h"
#include "runtime/text_of.h"

namespace onnxtorch {

// What the action gives. An exception of another kind comes out nested in an Error: of a reader of external data, say.
template <typename Action>
auto as_errors(const Action& action) {
  try {
    return action();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    std::throw_with_nested(Error(text_of(failure)));
  }
}

}  // namespace onnxtorch
