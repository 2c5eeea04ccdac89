// Files that the fuzzers read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace onnxtorch::fuzz {

std::string read(const std::filesystem::path& file);

// Reads the files in a folder and those below it, in the order of their names. Throws where there is none.
std::vector<std::string> files_in(const std::filesystem::path& folder);

}  // namespace onnxtorch::fuzz
