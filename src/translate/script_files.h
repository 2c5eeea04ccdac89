// The TorchScript sources of src/ops/scripts, as embedded in the binary at build time (cmake/embed_scripts.py).
#pragma once

#include <span>
#include <string_view>

namespace onnxtorch {

struct ScriptFile {
  std::string_view name;  // "reduction.py"
  std::string_view source;
};

std::span<const ScriptFile> script_files();  // ordered by name

}  // namespace onnxtorch
