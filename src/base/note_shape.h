// The shapes of a failing node's inputs, for its error's message.
#pragma once

#include <c10/macros/Export.h>

#include <string>
#include <vector>

namespace onnxtorch {

// The shapes that onnx_torch::note_shape notes on this thread while it lives.
class __attribute__((visibility("default"))) ShapeNotes {
 public:
  ShapeNotes();
  ~ShapeNotes();
  ShapeNotes(const ShapeNotes&) = delete;
  ShapeNotes& operator=(const ShapeNotes&) = delete;
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

}  // namespace onnxtorch
