// The functions of src/ops/scripts in TorchScript, as embedded in the binary at build time (cmake/embed_scripts.py).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace onnxtorch {

struct ScriptSource {
  std::string_view name, file;  // of the function, "reduction.py"
  size_t lines_before;          // in the file
  std::string_view source;
  bool kept;  // marked by @kept: calls of it may stay as they are, for passes to find
};

std::span<const ScriptSource> script_sources();  // ordered by name

}  // namespace onnxtorch
