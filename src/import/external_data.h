// Bytes of tensors that lie outside the model's message, in files beside it or in its own.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/fork_safe.h"
#include "import/open_file.h"
#include "onnx_torch/external.h"

namespace onnx {
class TensorProto;
}

namespace onnxtorch {

// The ways in which files of external data are read.
struct ExternalAccess {
  bool refuses_links = false;  // refuses symbolic links, and files that have other names
  bool maps = false;           // maps the files, so that they must not be cut while the model lives
};

// The model's own file, kept open for the large tensors that were not parsed: each is read when it is asked for, so
// that it need not stay in memory.
struct OwnFile {
  explicit OwnFile(const std::filesystem::path& path) : name(path.string()), file(path) {}  // throws a FileError

  std::string name;
  OpenFile file;
  FilePlaces places;
  std::unordered_map<const onnx::TensorProto*, FileRange> tensors;  // nothing that a model says leads here
};

// The external data of a model. Any number of threads may read it.
class ExternalData {
 public:
  // Files must lie below `directory`, and really do so once links are followed; where the model's file is a link, they
  // may also lie below the directory it leads to. Without a directory there are no files. The reader is asked before
  // the files.
  explicit ExternalData(std::filesystem::path directory = {}, std::shared_ptr<const Descriptor> linked_directory = {},
                        std::shared_ptr<const OwnFile> own_file = nullptr, ExternalReader reader = {});

  bool in_own_file(const onnx::TensorProto& tensor) const { return own_range(tensor) != nullptr; }
  // Gives the number of bytes that must be read from a file for a tensor that needs `size`; none where they are at
  // hand.
  std::optional<int64_t> to_read(const onnx::TensorProto& tensor, int64_t size, const ExternalAccess& access) const;

  // Reads the bytes of a tensor. `size` is what the tensor needs, taken where it does not tell a length. Throws
  // InvalidModelError.
  Bytes read(const onnx::TensorProto& tensor, int64_t size, const ExternalAccess& access = {}) const;

 private:
  const FileRange* own_range(const onnx::TensorProto& tensor) const;
  FilePlaces& places_in(const std::filesystem::path& location) const;

  std::filesystem::path directory_;
  std::shared_ptr<const Descriptor> linked_directory_;
  std::shared_ptr<const OwnFile> own_file_;
  ExternalReader reader_;
  mutable ForkSafeMutex mutex_;
  mutable std::map<std::filesystem::path, FilePlaces> files_;
};

}  // namespace onnxtorch
