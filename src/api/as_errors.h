// The conversion of exceptions: what leaves the library is an Error.
#pragma once

#include <exception>

#include "base/text_of.h"
#include "onnx_torch/error.h"

namespace onnxtorch {

// Gives what the action gives. An exception of another kind comes out nested in an Error, such as one of a reader of
// external data.
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
