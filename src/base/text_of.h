// The text of an exception, without where it came from.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

namespace onnxtorch {

inline std::string text_of(const std::exception& failure) {
  if (dynamic_cast<const std::bad_alloc*>(&failure)) return "there is not enough memory";
  const auto* const error = dynamic_cast<const c10::Error*>(&failure);
  return error ? error->what_without_backtrace() : failure.what();
}

}  // namespace onnxtorch
