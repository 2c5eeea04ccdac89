#include "language/model_folder.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

namespace fs = std::filesystem;

// Gives the files whose names begin with `stem`. What follows tells the type of the weights, such as "_q4" or "_fp16";
// the plain one comes first.
std::vector<fs::path> variants(const fs::path& folder, const std::string& stem) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
    const fs::path& path = file.path();
    const std::string name = path.stem().string();
    if (path.extension() != ".onnx" || !name.starts_with(stem)) continue;
    const std::string rest = name.substr(stem.size());
    if (rest.empty() ||
        (rest[0] == '_' && rest.find("past") == std::string::npos && rest.find("merged") == std::string::npos)) {
      found.push_back(path);
    }
  }
  std::ranges::sort(found);
  return found;
}

// Gives one of the variants: the plain one, or the only one.
std::optional<fs::path> one(const fs::path& folder, const std::string& stem) {
  const std::vector<fs::path> found = variants(folder, stem);
  if (found.empty()) return {};
  if (found.size() > 1 && found[0].stem() != stem) {
    std::string names;
    for (const fs::path& path : found) names += (names.empty() ? "" : ", ") + path.filename().string();
    throw InvalidModelError("the folder " + folder.string() + " has several decoders (" + names + "); give one's path");
  }
  return found[0];
}

std::optional<fs::path> sibling(const fs::path& file, const std::string& stem, const std::string& other) {
  const std::string name = file.filename().string();
  if (!name.starts_with(stem)) return {};
  const fs::path path = file.parent_path() / (other + name.substr(stem.size()));
  return fs::exists(path) ? std::optional(path) : std::nullopt;
}

// Gives a decoder with what stands beside it.
ModelFolder around(const fs::path& decoder) {
  ModelFolder found{decoder, {}, {}};
  const std::string stem = decoder.stem().string();
  const bool merged = stem.starts_with("decoder_model_merged");
  if (!merged && stem.starts_with("decoder_model")) {
    found.with_past = sibling(decoder, "decoder_model", "decoder_with_past_model");
  }
  if (stem.starts_with("decoder_model")) {
    found.encoder = sibling(decoder, merged ? "decoder_model_merged" : "decoder_model", "encoder_model");
    if (!found.encoder) found.encoder = one(decoder.parent_path(), "encoder_model");
  }
  return found;
}

}  // namespace

ModelFolder find_model(const fs::path& path) {
  if (!fs::is_directory(path)) return around(path);
  for (const fs::path& folder : {path, path / "onnx"}) {
    if (!fs::is_directory(folder)) continue;
    for (const char* stem : {"decoder_model_merged", "decoder_model", "model"}) {
      if (const auto file = one(folder, stem)) return around(*file);
    }
  }
  throw InvalidModelError("the folder " + path.string() +
                          " has no decoder: neither decoder_model_merged.onnx nor decoder_model.onnx nor model.onnx, "
                          "nor a folder onnx with one of them");
}

}  // namespace onnxtorch
