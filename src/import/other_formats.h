// What people give by mistake in place of a model, or of its external data.
#pragma once

#include <string>
#include <string_view>

#include "import/open_file.h"

namespace onnxtorch {

// Tells what a file is by how it begins, and what to do; nothing where that does not tell.
std::string_view other_format(std::string_view beginning);

// "FILE is not an ONNX model", and what it is instead.
std::string no_model(const std::string& file_is, std::string_view beginning);

// A beginning that is long enough.
std::string beginning_of(const OpenFile& file);

}  // namespace onnxtorch
