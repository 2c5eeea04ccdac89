// Files that the fuzzers read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace onnxtorch::fuzz {

std::string read(const std::filesystem::path& file);

// What the files in a folder and those below it hold, in the order of their names; there is one at least.
std::vector<std::string> files_in(const std::filesystem::path& folder);

}  // namespace onnxtorch::fuzz
