// The functions of src/ops/scripts, as they are compiled when the library is built (cmake/compile_scripts.cpp).
#pragma once

#include <span>
#include <string_view>

namespace onnxtorch {

struct CompiledScript {
  std::string_view name;
  std::string_view schema;  // the schema of a kept script's operator, or of the function
  std::string_view graph;   // the graph as text
  bool kept = false;        // marked by @kept: calls of it may stay as they are, for passes to find
};

std::span<const CompiledScript> compiled_scripts();  // ordered by name

}  // namespace onnxtorch
