// External data that does not lie in files: in the caller's memory, encrypted, in an object store.
//
//   const auto model = onnxtorch::Model::from_bytes(bytes, {}, onnxtorch::in_memory({{"weights.bin", {view, owner}}}));
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "onnx_torch/visibility.h"

namespace onnxtorch {

// A piece of memory, and what keeps it; without an owner the caller does, as long as the model lives.
struct Bytes {
  std::string_view view;
  std::shared_ptr<const void> owner;
};

// A function that gives so many bytes of a file from an offset on, by the name that the model has for it; nothing where
// they lie in a file after all. It is called while a model is compiled, each time that is done, and where a run asks
// for values that no run before asked for; on any thread. What it gives is not written to, and is copied only where it
// is not aligned for its type.
using ExternalReader = std::function<std::optional<Bytes>(const std::string& name, int64_t offset, int64_t length)>;

// Gives a reader of whole files that are in memory, by their names.
ONNX_TORCH_API ExternalReader in_memory(std::map<std::string, Bytes> files);

}  // namespace onnxtorch
