#include "import/external_data.h"

#include <fcntl.h>
#include <onnx/onnx-ml.pb.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>

#include "import/tensor_proto.h"

namespace onnxtorch {
namespace {

namespace fs = std::filesystem;

// The entries that matter here; "checksum" is not verified, because that would read the whole file.
struct Location {
  fs::path file;
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
    if (entry.key() == "location") location.file = fs::path(entry.value()).lexically_normal();
    if (entry.key() == "offset") location.offset = number(tensor, entry);
    if (entry.key() == "length") location.length = number(tensor, entry);
  }
  return location;
}

bool is_below(const fs::path& file, const fs::path& directory) {
  std::error_code error;
  const fs::path base = fs::canonical(directory, error);
  return !error && *file.lexically_relative(base).begin() != "..";
}

}  // namespace

ExternalData::ExternalData(fs::path directory, fs::path linked_directory)
    : directory_(std::move(directory)), linked_directory_(std::move(linked_directory)) {}

Bytes ExternalData::read(const onnx::TensorProto& tensor, int64_t size) const {
  const Location location = location_of(tensor);
  const std::string name = location.file.string();
  if (location.file.empty() || location.file.is_absolute() || *location.file.begin() == "..") {
    fail(tensor, "its external data must lie in a file beside or below the model, not in \"" + name + "\"");
  }
  if (directory_.empty()) {
    fail(tensor, "its data lies in the external file " + name + ", and the model comes without a directory (base_dir)");
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
  const int64_t length = location.length.value_or(size);
  if (location.offset > available || length > available - location.offset) {
    fail(tensor, "its external data, " + std::to_string(length) + " bytes from " + std::to_string(location.offset) +
                     " on, ends past the end of " + name + " (" + std::to_string(available) + " bytes)");
  }
  return {bytes.view.substr(static_cast<size_t>(location.offset), static_cast<size_t>(length)), bytes.owner};
}

Bytes ExternalData::mapped(const fs::path& file) const {
  const std::lock_guard lock(mutex_);
  if (const auto known = files_.find(file); known != files_.end()) return known->second;
  const auto check = [&](bool good, int error) {
    if (!good) throw fs::filesystem_error("", file, std::error_code(error, std::generic_category()));
  };
  check(fs::is_regular_file(file), EINVAL);
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  check(descriptor >= 0, errno);
  struct stat status{};
  ::fstat(descriptor, &status);
  const auto size = static_cast<size_t>(status.st_size);
  // Writable, as the memory of a tensor is; no swap is set aside for copies that nobody may ever make.
  void* start =
      size ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0) : nullptr;
  const int error = errno;
  ::close(descriptor);
  check(start != MAP_FAILED, error);
  std::shared_ptr<const void> owner(start, [size](void* p) {
    if (p) ::munmap(p, size);
  });
  return files_[file] = {{static_cast<const char*>(start), size}, std::move(owner)};
}

}  // namespace onnxtorch
