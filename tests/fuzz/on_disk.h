// Models as they lie on the disk: a file, and files of data beside it, which are not always what they should be.
#pragma once

#include <filesystem>
#include <string>

#include "random.h"
#include "temporary_folder.h"

namespace onnxtorch::fuzz {

// Has folders made in memory, where the system has a file system there: a disk takes ten times as long as the rest. Who
// sets TMPDIR decides.
void make_folders_in_memory();

// What a model's files hold.
struct Layout {
  std::string whole;  // the model in one piece
  std::string model;  // as its file has it: some tensors are in the file of data
  std::string data;
  bool is_sound;  // whether the files hold the whole model
};

// Moves some of a model's tensors to a file of data, and, where the layout is not to be sound, changes what the model
// says of them, the data, and bytes of the model's file.
Layout laid_out(const std::string& bytes, Random& random);

// What each byte is of a file that a model must not read; one of its names is `kHardLink`, in the model's folder.
constexpr char kOutside = '\xA7';
constexpr const char* kHardLink = "hard.bin";

// A folder of a model, with links that lead in, out and nowhere, a pipe, and a folder of links to it.
class ModelFolder {
 public:
  explicit ModelFolder(const Layout& layout);

  std::filesystem::path directory() const { return root_.path() / "model"; }
  std::filesystem::path file() const { return directory() / "model.onnx"; }
  std::filesystem::path linked_file() const { return root_.path() / "snapshot" / "model.onnx"; }

  // Cuts, lengthens, overwrites, removes or replaces the model's file or that of its data.
  void spoil(Random& random) const;

 private:
  testing::TemporaryFolder root_;
};

}  // namespace onnxtorch::fuzz
