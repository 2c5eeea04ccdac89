#include "files.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace onnxtorch::fuzz {

std::string read(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + file.string());
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) names.push_back(entry.path());
  std::ranges::sort(names);
  std::vector<std::string> files;
  for (const auto& name : names) files.push_back(read(name));
  if (files.empty()) throw std::runtime_error("there are no files in " + folder.string());
  return files;
}

}  // namespace onnxtorch::fuzz
