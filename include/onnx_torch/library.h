// Operators of your own domain for the models of this process; translator.h is how they are written.
#pragma once

#include <filesystem>

#include "onnx_torch/translator.h"
#include "onnx_torch/visibility.h"

namespace onnxtorch {

// Loads a shared library and adds its ONNX_TORCH_OPERATORS; it stays loaded. Throws InputError.
ONNX_TORCH_API void load_library(const std::filesystem::path& file);

// Gives the table itself, for translators that are a part of the program.
ONNX_TORCH_API translator::OperatorTable& operators();

}  // namespace onnxtorch
