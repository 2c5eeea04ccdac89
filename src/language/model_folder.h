// The files of a language model in a folder, by the names that exporters give them.
#pragma once

#include <filesystem>
#include <optional>

namespace onnxtorch {

struct ModelFolder {
  std::filesystem::path decoder;
  std::optional<std::filesystem::path> with_past, encoder;
};

// Finds the files. Throws InvalidModelError where none is found, or where it cannot be told which.
ModelFolder find_model(const std::filesystem::path& path);

}  // namespace onnxtorch
