#include "import/external_data.h"

#include <onnx/onnx-ml.pb.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "import/other_formats.h"
#include "import/tensor_proto.h"
#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

namespace fs = std::filesystem;

// The entries of external data that matter here; "checksum" is not verified, because that would read the whole file.
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
  std::set<std::string_view> keys;
  for (const auto& entry : tensor.external_data()) {
    if (!keys.insert(entry.key()).second) fail(tensor, "its external data has two entries \"" + entry.key() + "\"");
    if (entry.key() == "location") location.file = fs::path(entry.value()).lexically_normal();
    if (entry.key() == "offset") location.offset = number(tensor, entry);
    if (entry.key() == "length") location.length = number(tensor, entry);
  }
  const std::string& name = location.file.native();
  if (name.empty()) fail(tensor, "its external data has no location");
  if (name.find('\0') != std::string::npos) fail(tensor, "the location of its external data has a zero byte in it");
  if (location.file.is_absolute() || *location.file.begin() == "..") {
    fail(tensor, "its external data must lie in a file beside or below the model, not in \"" + name + "\"");
  }
  return location;
}

}  // namespace

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

ExternalData::ExternalData(fs::path directory, std::shared_ptr<const Descriptor> linked_directory,
                           std::shared_ptr<const OwnFile> own_file, ExternalReader reader)
    : directory_(directory.empty() ? std::move(directory) : fs::absolute(directory)),
      linked_directory_(std::move(linked_directory)),
      own_file_(std::move(own_file)),
      reader_(std::move(reader)) {}

const FileRange* ExternalData::own_range(const onnx::TensorProto& tensor) const {
  if (!own_file_) return nullptr;
  const auto found = own_file_->tensors.find(&tensor);
  return found == own_file_->tensors.end() ? nullptr : &found->second;
}

std::optional<int64_t> ExternalData::to_read(const onnx::TensorProto& tensor, int64_t size,
                                             const ExternalAccess& access) const {
  if (const auto* range = own_range(tensor)) return range->length;
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL || reader_ || access.maps) return {};
  return location_of(tensor).length.value_or(size);
}

Bytes ExternalData::read(const onnx::TensorProto& tensor, int64_t size, const ExternalAccess& access) const {
  if (const auto* range = own_range(tensor)) {
    try {
      return own_file_->places.read(own_file_->file, range->offset, range->length);
    } catch (const FileError& error) {
      fail(tensor, "cannot read the model's file " + own_file_->name + ": " + error.what());
    }
  }
  const Location location = location_of(tensor);
  const std::string name = location.file.string();
  const int64_t length = location.length.value_or(size);
  const std::string part = std::to_string(length) + " bytes ";
  const std::string start = "from " + std::to_string(location.offset) + " on";
  if (auto given = reader_ ? reader_(name, location.offset, length) : std::nullopt) {
    const auto count = static_cast<int64_t>(given->view.size());
    if (count != length) {
      fail(tensor, "its external data is " + part + "of " + name + " " + start + ", and " + std::to_string(count) +
                       " were given");
    }
    return *given;
  }
  if (directory_.empty()) {
    fail(tensor, "its data lies in the external file " + name +
                     ", and the model comes without it (external) and without a directory (base_dir)");
  }
  try {
    const LocatedFile found = located(directory_, location.file, access.refuses_links);
    if (!found.is_below(found.directory) && !(linked_directory_ && found.is_below(linked_directory_->identity()))) {
      fail(tensor, "its external data file " + name + " is a link out of the model's directory");
    }
    FilePlaces& places = places_in(location.file);
    const Bytes whole = access.maps ? places.mapped(found.file) : Bytes{};
    const int64_t available = access.maps ? static_cast<int64_t>(whole.view.size()) : found.file.size();
    if (location.offset > available || length > available - location.offset) {
      const std::string_view other = other_format(beginning_of(found.file));
      fail(tensor, "its external data, " + part + start + ", ends past the end of " + name + " (" +
                       std::to_string(available) + " bytes)" +
                       (other.empty() ? "" : ", which is " + std::string(other)));
    }
    if (!access.maps) return places.read(found.file, location.offset, length);
    return {whole.view.substr(static_cast<size_t>(location.offset), static_cast<size_t>(length)), whole.owner};
  } catch (const FileError& error) {
    fail(tensor, "cannot read its external data file " + (directory_ / location.file).string() + ": " + error.what());
  }
}

FilePlaces& ExternalData::places_in(const fs::path& location) const {
  const std::lock_guard lock(mutex_);
  return files_[location];
}

}  // namespace onnxtorch
