// The bindings of what runs language models, for the module that module.cpp defines.
#pragma once

#include <pybind11/pybind11.h>

namespace onnxtorch {

// Defines LanguageModel, GenerationState and Generation.
void bind_language(pybind11::module_& m);

}  // namespace onnxtorch
