// What the language that calls the library keeps of an exception of its own that goes through C++ without a text.
#pragma once

#include <string>

namespace onnxtorch {

// Takes what is pending in this thread, and tells it; "" where nothing is.
using TakePendingError = std::string (*)();

void register_pending_errors(TakePendingError take);
std::string take_pending_error();

}  // namespace onnxtorch
