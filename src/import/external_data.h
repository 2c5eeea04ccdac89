// Bytes of tensors that lie outside the model's message, in files beside it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

namespace onnx {
class TensorProto;
}

namespace onnxtorch {

// A piece of memory, and what keeps it.
struct Bytes {
  std::string_view view;
  std::shared_ptr<const void> owner;
};

// Maps each file into memory once, when the first tensor asks for it. The mappings are private: what is written to one
// never reaches the file. Any number of threads may read.
class ExternalData {
 public:
  // Files must lie below `directory`; where the model's file is a link, they may also lie below the directory it leads
  // to. Without a directory there are no files.
  explicit ExternalData(std::filesystem::path directory = {}, std::filesystem::path linked_directory = {});

  // Throws InvalidModelError. `size` is what the tensor needs, taken where it does not tell a length.
  Bytes read(const onnx::TensorProto& tensor, int64_t size) const;

 private:
  Bytes mapped(const std::filesystem::path& file) const;

  std::filesystem::path directory_, linked_directory_;
  mutable std::mutex mutex_;
  mutable std::map<std::filesystem::path, Bytes> files_;
};

}  // namespace onnxtorch
