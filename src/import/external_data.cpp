#include "import/external_data.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>
#include <fcntl.h>
#include <onnx/onnx-ml.pb.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>

#include "import/tensor_proto.h"
#include "kernels/own_pages.h"
#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

namespace fs = std::filesystem;

// The entries that matter here; "checksum" is not verified, because that would read the whole file.
struct Location {
  fs::path file;
  bool is_own = false;  // the model's
  int64_t offset = 0;
  std::optional<int64_t> length;
};

int64_t number(const onnx::TensorProto& tensor, const onnx::StringStringEntryProto& entry) {
  const std::string& text = entry.value();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
    fail(tensor, "the " + entry.key() + " of its external data is \"" + text + "\", not a number of bytes");
  }
  return value;
}

Location location_of(const onnx::TensorProto& tensor) {
  Location location;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") {
      location.is_own = entry.value() == kOwnFile;
      location.file = fs::path(entry.value()).lexically_normal();
    }
    if (entry.key() == "offset") location.offset = number(tensor, entry);
    if (entry.key() == "length") location.length = number(tensor, entry);
  }
  return location;
}

[[noreturn]] void refuse(const fs::path& file, int error) {
  throw fs::filesystem_error("", file, std::error_code(error, std::generic_category()));
}

// Private, and so writable where asked for: what is written never reaches the file.
Bytes map_file(const fs::path& file, int descriptor, size_t size, int protection) {
  if (size == 0) return {};
  // No swap is set aside for copies that nobody may ever make.
  void* const start = ::mmap(nullptr, size, protection, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  if (start == MAP_FAILED) refuse(file, errno);
  std::shared_ptr<const void> owner(start, [size](void* p) { ::munmap(p, size); });
  return {{static_cast<const char*>(start), size}, std::move(owner)};
}

struct stat status_of(int descriptor) {
  struct stat status{};
  ::fstat(descriptor, &status);
  return status;
}

std::string version_of(int descriptor) {
  const struct stat status = status_of(descriptor);
  return std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + " " +
         std::to_string(status.st_mtim.tv_nsec);
}

bool is_below(const fs::path& file, const fs::path& directory) {
  std::error_code error;
  const fs::path base = fs::canonical(directory, error);
  return !error && *file.lexically_relative(base).begin() != "..";
}

}  // namespace

OpenFile::OpenFile(fs::path path) : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) refuse(path_, errno);
  version_ = version_of(descriptor_);
}

OpenFile::~OpenFile() { ::close(descriptor_); }

Bytes OpenFile::mapped() const {
  return map_file(path_, descriptor_, static_cast<size_t>(status_of(descriptor_).st_size), PROT_READ);
}

Bytes OpenFile::read(int64_t offset, int64_t length) const {
  const auto check = [&](bool good, const char* problem) {
    if (!good) throw InvalidModelError("the model's file " + path_.string() + problem);
  };
  const auto bytes = [&](std::shared_ptr<const void> owner) {
    const std::string_view view(static_cast<const char*>(owner.get()), static_cast<size_t>(length));
    return Bytes{view, std::move(owner)};
  };
  if (auto owner = in_memory({offset, length})) return bytes(std::move(owner));
  const int64_t size = status_of(descriptor_).st_size;
  bool whole = offset <= size && length <= size - offset;
  const auto memory = std::make_shared<const at::Tensor>(own_pages(whole ? length : 0));
  for (int64_t done = 0; whole && done < length;) {
    const ssize_t count =
        ::pread(descriptor_, memory->data_ptr<uint8_t>() + done, static_cast<size_t>(length - done), offset + done);
    whole = count > 0 || (count < 0 && errno == EINTR);
    done += std::max<ssize_t>(count, 0);
  }
  check(version_of(descriptor_) == version_,
        " has changed since it was loaded; it must stay as it is while the model lives");
  check(whole, " cannot be read");
  return bytes(in_memory({offset, length}, {memory, memory->data_ptr()}));
}

// What is in memory of a place in the file; else what was read of it, if anything.
std::shared_ptr<const void> OpenFile::in_memory(const Place& place, std::shared_ptr<const void> read) const {
  const std::lock_guard lock(mutex_);
  auto& known = in_memory_[place];
  if (auto owner = known.lock()) return owner;
  known = read;
  return read;
}

ExternalReader in_memory(std::map<std::string, Bytes> files) {
  std::map<std::string, Bytes> by_place;
  for (auto& [name, bytes] : files) by_place[fs::path(name).lexically_normal().string()] = std::move(bytes);
  return [files = std::move(by_place)](const std::string& name, int64_t offset, int64_t length) {
    const auto file = files.find(name);
    if (file == files.end()) return std::optional<Bytes>();
    const auto& [view, owner] = file->second;
    const size_t start = std::min(static_cast<size_t>(offset), view.size());
    return std::optional(Bytes{view.substr(start, static_cast<size_t>(length)), owner});
  };
}

ExternalData::ExternalData(fs::path directory, fs::path linked_directory, std::shared_ptr<const OpenFile> own_file,
                           ExternalReader reader)
    : directory_(std::move(directory)),
      linked_directory_(std::move(linked_directory)),
      own_file_(std::move(own_file)),
      reader_(std::move(reader)) {}

std::optional<int64_t> ExternalData::length_in_own_file(const onnx::TensorProto& tensor) {
  const Location location = location_of(tensor);
  return location.is_own ? std::optional(location.length.value_or(0)) : std::nullopt;
}

Bytes ExternalData::read(const onnx::TensorProto& tensor, int64_t size) const {
  const Location location = location_of(tensor);
  const int64_t length = location.length.value_or(size);
  if (location.is_own && own_file_) return own_file_->read(location.offset, length);
  const std::string name = location.file.string();
  if (location.file.empty() || location.file.is_absolute() || *location.file.begin() == "..") {
    fail(tensor, "its external data must lie in a file beside or below the model, not in \"" + name + "\"");
  }
  if (auto given = reader_ ? reader_(name, location.offset, length) : std::nullopt) {
    const auto count = static_cast<int64_t>(given->view.size());
    if (count != length) {
      fail(tensor, "its external data is " + std::to_string(length) + " bytes of " + name + " from " +
                       std::to_string(location.offset) + " on, and " + std::to_string(count) + " were given");
    }
    return *given;
  }
  if (directory_.empty()) {
    fail(tensor, "its data lies in the external file " + name +
                     ", and the model comes without it (external) and without a directory (base_dir)");
  }
  std::error_code error;
  const fs::path file = fs::canonical(directory_ / location.file, error);
  if (error)
    fail(tensor,
         "cannot open its external data file " + (directory_ / location.file).string() + ": " + error.message());
  if (!is_below(file, directory_) && (linked_directory_.empty() || !is_below(file, linked_directory_))) {
    fail(tensor, "its external data file " + name + " is a link out of the model's directory, to " + file.string());
  }
  Bytes bytes;
  try {
    bytes = mapped(file);
  } catch (const fs::filesystem_error& e) {
    fail(tensor, "cannot open its external data file " + file.string() + ": " + e.code().message());
  }
  const auto available = static_cast<int64_t>(bytes.view.size());
  if (location.offset > available || length > available - location.offset) {
    fail(tensor, "its external data, " + std::to_string(length) + " bytes from " + std::to_string(location.offset) +
                     " on, ends past the end of " + name + " (" + std::to_string(available) + " bytes)");
  }
  return {bytes.view.substr(static_cast<size_t>(location.offset), static_cast<size_t>(length)), bytes.owner};
}

Bytes ExternalData::mapped(const fs::path& file) const {
  const std::lock_guard lock(mutex_);
  if (const auto known = files_.find(file); known != files_.end()) return known->second;
  if (!fs::is_regular_file(file)) refuse(file, EINVAL);
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) refuse(file, errno);
  const auto close = c10::make_scope_exit([&] { ::close(descriptor); });
  // Writable, as the memory of a tensor is.
  return files_[file] =
             map_file(file, descriptor, static_cast<size_t>(status_of(descriptor).st_size), PROT_READ | PROT_WRITE);
}

}  // namespace onnxtorch
