// Files that are opened once, checked by their descriptor, and read through it, so that what a path leads to later does
// not matter.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/fork_safe.h"
#include "base/own_pages.h"
#include "onnx_torch/external.h"

namespace onnxtorch {

// The reason why a file cannot be read, without the file's name.
struct FileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file or directory that is open. It is closed when this object goes.
class Descriptor {
 public:
  explicit Descriptor(int number);  // throws a FileError where the call that gave the number failed
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int number() const { return number_; }
  struct Identity {
    dev_t device;
    ino_t file;
    auto operator<=>(const Identity&) const = default;
  };
  Identity identity() const;  // that of the file, whatever leads to it

 private:
  int number_;
};

// A regular file.
class OpenFile {
 public:
  // Opens a file, and waits for nobody: a pipe or a device is refused, and not opened. Throws a FileError.
  explicit OpenFile(const std::filesystem::path& path);
  explicit OpenFile(Descriptor descriptor);

  const Descriptor& descriptor() const { return descriptor_; }
  int64_t size() const;
  std::string version() const;  // a text that differs when the file is changed, or is another
  bool has_other_links() const;
  // Reads all bytes, or throws a FileError; several threads read where they are many.
  void read(int64_t offset, int64_t length, char* to) const;
  // Reads as many bytes as there are, up to `most`, and gives their number.
  int64_t read_some(int64_t offset, int64_t most, char* to) const;
  Bytes mapped() const;  // the whole file, privately and writable: what is written never reaches it

 private:
  Descriptor descriptor_;
};

// A file below a directory, links followed, and the directories above the place where it really lies.
struct LocatedFile {
  OpenFile file;
  std::vector<Descriptor> above;   // outermost first
  Descriptor::Identity directory;  // the directory in which the file was looked for
  bool is_below(const Descriptor::Identity& other) const;
};

// Opens the file at a location in a directory. Every name on the way is looked up once, in the directory that the names
// before it have opened. A link in `location` is followed as the system would, or refused. Throws a FileError.
LocatedFile located(const std::filesystem::path& directory, const std::filesystem::path& location, bool refuses_links);

// A range of a file's bytes.
struct FileRange {
  int64_t offset, length;
  auto operator<=>(const FileRange&) const = default;
};

// A reader of ranges of one file, each into memory of its own, which is shared as long as anybody has it. It notices
// where the file is not what it was at first. Any number of threads may read.
class FilePlaces {
 public:
  Bytes read(const OpenFile& file, int64_t offset, int64_t length) const;  // throws a FileError
  Bytes mapped(const OpenFile& file) const;                                // maps the file once

 private:
  std::shared_ptr<const void> in_memory(const FileRange& range, std::shared_ptr<const void> read = nullptr) const;
  void check_version(const OpenFile& file) const;
  at::Tensor pages_for(const OpenFile& file, int64_t length) const;

  mutable ForkSafeMutex mutex_;
  mutable std::string version_;  // empty until the file is first read
  mutable std::map<FileRange, std::weak_ptr<const void>> in_memory_;
  mutable std::optional<Bytes> mapped_;
  mutable std::unique_ptr<HugePages> pages_;
};

}  // namespace onnxtorch
