// Formats of files that people give by mistake in place of a model, or of its external data.
#pragma once

#include <string>
#include <string_view>

#include "import/open_file.h"

namespace onnxtorch {

// Tells what a file is by how it begins, and what to do; nothing where that does not tell.
std::string_view other_format(std::string_view beginning);

// Gives "FILE is not an ONNX model", and what the file is instead.
std::string no_model(const std::string& file_is, std::string_view beginning);

// Gives the beginning of a file, long enough to tell its format.
std::string beginning_of(const OpenFile& file);

}  // namespace onnxtorch
