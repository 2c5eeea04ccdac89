#include "on_disk.h"

#include <onnx_fuzz.pb.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "messages.h"
#include "mutate.h"

namespace onnxtorch::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr const char* kData = "weights.bin";
// Below the model's folder, and elsewhere.
const std::array<std::string, 24> kPlaces{
    kData,
    "./weights.bin",
    "sub/../weights.bin",
    "sub/weights.bin",
    "link.bin",
    kHardLink,
    "model.onnx",
    "out.bin",
    "out/outside.bin",
    "out/model/weights.bin",
    "../outside.bin",
    "sub/../../outside.bin",
    "loop.bin",
    "pipe",
    "sub",
    ".",
    "..",
    "",
    "absent.bin",
    "weights.bin/",
    "/dev/zero",
    "/etc/passwd",
    std::string("weights.bin\0x", 13),
    std::string(5000, 'n'),
};
const std::array<std::string, 16> kNumbers{"0",
                                           "1",
                                           "3",
                                           "8",
                                           "64",
                                           "4096",
                                           "1048576",
                                           "-1",
                                           "",
                                           "0x8",
                                           "1e3",
                                           " 8",
                                           "2147483648",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "9223372036854775808"};

void say(onnx_fuzz::TensorProto& tensor, const std::string& key, const std::string& value) {
  auto& entry = *tensor.add_external_data();
  entry.set_key(key);
  entry.set_value(value);
}

// A tensor that is so large that its bytes are passed over, and an output that shows it.
void add_large(onnx_fuzz::GraphProto& graph) {
  constexpr int kElements = 2000;
  auto& tensor = *graph.add_initializer();
  tensor.set_name("large");
  tensor.set_data_type(onnx_fuzz::TensorProto::FLOAT);
  tensor.add_dims(kElements);
  tensor.set_raw_data(std::string(kElements * sizeof(float), '\x3f'));
  auto& node = *graph.add_node();
  node.set_op_type("Neg");
  node.add_input("large");
  node.add_output("large negated");
  auto& output = *graph.add_output();
  output.set_name("large negated");
  output.mutable_type()->mutable_tensor_type()->set_elem_type(onnx_fuzz::TensorProto::FLOAT);
}

bool may_move(const onnx_fuzz::TensorProto& tensor) {
  return !tensor.raw_data().empty() && tensor.data_type() != onnx_fuzz::TensorProto::STRING &&
         tensor.data_location() == onnx_fuzz::TensorProto::DEFAULT && tensor.external_data_size() == 0;
}

void move(onnx_fuzz::TensorProto& tensor, std::string& data, Random& random) {
  data.resize(random.one_in(3) ? data.size() : (data.size() + 63) / 64 * 64);
  tensor.set_data_location(onnx_fuzz::TensorProto::EXTERNAL);
  say(tensor, "location", kData);
  say(tensor, "offset", std::to_string(data.size()));
  say(tensor, "length", std::to_string(tensor.raw_data().size()));
  if (random.one_in(4)) say(tensor, "checksum", "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  data += tensor.raw_data();
  tensor.clear_raw_data();
}

// Changes what a model says of where a tensor's data is.
void mislead(onnx_fuzz::TensorProto& tensor, int64_t data_size, Random& random) {
  const std::string near = std::to_string(data_size + random.below(9) - 4);
  const auto value_of = [&](const std::string& key, const std::string& value) {
    for (auto& entry : *tensor.mutable_external_data())
      if (entry.key() == key) entry.set_value(value);
  };
  auto& entries = *tensor.mutable_external_data();
  switch (random.below(10)) {
    case 0:
    case 1:
    case 2:
      return value_of("location", random.of(kPlaces));
    case 3:
      return value_of("offset", random.one_in(3) ? near : random.of(kNumbers));
    case 4:
      return value_of("length", random.one_in(3) ? near : random.of(kNumbers));
    case 5:
      if (!entries.empty()) *entries.Add() = onnx_fuzz::StringStringEntryProto(*entries.Mutable(0));
      return;
    case 6:
      if (!entries.empty()) entries.DeleteSubrange(random.below(entries.size()), 1);
      return;
    case 7:
      return say(tensor, random.below(2) ? "basepath" : "", random.of(kPlaces));
    case 8:
      return tensor.set_raw_data("beside");
    default:
      return tensor.clear_data_location();
  }
}

void cut(std::string& bytes, Random& random) { bytes.resize(random.below(bytes.size() + 1)); }

void link_to(const fs::path& target, const fs::path& link) { fs::create_symlink(target, link); }

}  // namespace

void make_folders_in_memory() {
  constexpr const char* kInMemory = "/dev/shm";
  constexpr int kKeep = 0;
  if (::access(kInMemory, W_OK) == 0) ::setenv("TMPDIR", kInMemory, kKeep);
}

Layout laid_out(const std::string& bytes, Random& random) {
  Layout layout{bytes, bytes, std::string(random.below(100), 'd'), random.one_in(3)};
  onnx_fuzz::ModelProto model;
  if (!model.ParseFromString(bytes)) return layout;
  // Files from some size on are read piece by piece.
  if (random.below(2)) model.mutable_graph()->set_doc_string(std::string(5000, 'd'));
  if (random.one_in(3)) add_large(*model.mutable_graph());
  layout.whole = model.SerializeAsString();
  for (auto* const tensor : all_of<onnx_fuzz::TensorProto>(model)) {
    if (may_move(*tensor) && random.below(3)) move(*tensor, layout.data, random);
  }
  if (layout.is_sound) {
    layout.model = model.SerializeAsString();
    return layout;
  }
  for (auto* const tensor : all_of<onnx_fuzz::TensorProto>(model)) {
    if (random.one_in(3)) mislead(*tensor, std::ssize(layout.data), random);
  }
  layout.model = model.SerializeAsString();
  if (random.one_in(4)) mutate_bytes(layout.model, layout.whole, random);
  if (random.one_in(16)) cut(layout.model, random);
  if (random.one_in(4)) cut(layout.data, random);
  return layout;
}

ModelFolder::ModelFolder(const Layout& layout) {
  constexpr size_t kBytesOutside = 1 << 14;
  root_.write("model/model.onnx", layout.model);
  root_.write("model/weights.bin", layout.data);
  root_.write("model/sub/weights.bin", layout.data);
  const fs::path outside = root_.write("outside.bin", std::string(kBytesOutside, kOutside));
  fs::create_hard_link(outside, directory() / kHardLink);
  link_to(kData, directory() / "link.bin");
  link_to("../outside.bin", directory() / "out.bin");
  link_to("..", directory() / "out");
  link_to("loop.bin", directory() / "loop.bin");
  const std::string pipe = directory() / "pipe";
  if (::mkfifo(pipe.c_str(), S_IRUSR | S_IWUSR) != 0) throw std::system_error(errno, std::generic_category(), pipe);
  fs::create_directory(linked_file().parent_path());
  link_to("../model/model.onnx", linked_file());
  link_to("../model/weights.bin", linked_file().parent_path() / kData);
}

void ModelFolder::spoil(Random& random) const {
  const fs::path file = random.one_in(3) ? this->file() : directory() / kData;
  const uintmax_t size = fs::is_regular_file(file) ? fs::file_size(file) : 0;
  switch (random.below(6)) {
    case 0:
    case 1:
      if (fs::is_regular_file(file)) fs::resize_file(file, random.below(size + 1));
      return;
    case 2:
      if (fs::is_regular_file(file)) fs::resize_file(file, size + 1 + random.below(5000));
      return;
    case 3:
      if (fs::is_regular_file(file)) root_.write(file, std::string(size, 's'));
      return;
    case 4:
      fs::remove_all(file);
      return;
    default:
      fs::remove_all(file);
      return random.below(2) ? link_to("../outside.bin", file) : static_cast<void>(fs::create_directory(file));
  }
}

}  // namespace onnxtorch::fuzz
