// Bytes of tensors that lie outside the model's message, in files beside it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "kernels/fork_safe.h"
#include "onnx_torch/external.h"

namespace onnx {
class TensorProto;
}

namespace onnxtorch {

// A model's own file, kept open for the large tensors that were not parsed: each is read when it is asked for, so that
// it need not stay in memory. What is in memory still is not read again. Any number of threads may read.
class OpenFile {
 public:
  explicit OpenFile(std::filesystem::path path);  // throws filesystem_error
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  Bytes mapped() const;  // the whole file, for reading only; throws filesystem_error
  // Throws InvalidModelError, too where the file was changed since it was opened.
  Bytes read(int64_t offset, int64_t length) const;

 private:
  using Place = std::pair<int64_t, int64_t>;  // an offset and a length
  std::shared_ptr<const void> in_memory(const Place& place, std::shared_ptr<const void> read = nullptr) const;

  const std::filesystem::path path_;
  const int descriptor_;
  std::string version_;  // what differs when the file has been changed
  mutable ForkSafeMutex mutex_;
  mutable std::map<Place, std::weak_ptr<const void>> in_memory_;
};

// The location of external data that lies in the model's own file; no location that a model can mean.
constexpr std::string_view kOwnFile = "//model";

// Maps each file into memory once, when the first tensor asks for it. The mappings are private: what is written to one
// never reaches the file. Any number of threads may read.
class ExternalData {
 public:
  // Files must lie below `directory`; where the model's file is a link, they may also lie below the directory it leads
  // to. Without a directory there are no files. The reader goes before them.
  explicit ExternalData(std::filesystem::path directory = {}, std::filesystem::path linked_directory = {},
                        std::shared_ptr<const OpenFile> own_file = nullptr, ExternalReader reader = {});

  // How many bytes of the model's own file a tensor has; none where it lies elsewhere.
  static std::optional<int64_t> length_in_own_file(const onnx::TensorProto& tensor);

  // Throws InvalidModelError. `size` is what the tensor needs, taken where it does not tell a length.
  Bytes read(const onnx::TensorProto& tensor, int64_t size) const;

 private:
  Bytes mapped(const std::filesystem::path& file) const;

  std::filesystem::path directory_, linked_directory_;
  std::shared_ptr<const OpenFile> own_file_;
  ExternalReader reader_;
  mutable ForkSafeMutex mutex_;
  mutable std::map<std::filesystem::path, Bytes> files_;
};

}  // namespace onnxtorch
