// The exception that the language which calls the library keeps to itself, while C++ sees one without a text.
#pragma once

#include <string>

namespace onnxtorch {

// A function that takes what is pending in this thread, and tells it; "" where nothing is.
using TakePendingError = std::string (*)();

void register_pending_errors(TakePendingError take);
std::string take_pending_error();

}  // namespace onnxtorch
