// The shapes that a failing node saw: a model is run a second time with this operator in front of the node that failed.
#include "base/note_shape.h"

#include <torch/library.h>

#include <sstream>

namespace onnxtorch {
namespace {

thread_local std::vector<std::string>* notes = nullptr;

void note_shape(const at::Tensor& x, int64_t input) {
  if (!notes) return;
  std::ostringstream text;
  text << "input " << input << ": " << c10::toString(x.scalar_type()) << ' ' << x.sizes();
  notes->push_back(text.str());
}

}  // namespace

ShapeNotes::ShapeNotes() { notes = &lines_; }
ShapeNotes::~ShapeNotes() { notes = nullptr; }

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // Notes the shape of a node's input for the error message. It must stay in the graph although it returns nothing.
  m.def(torch::schema("note_shape(Tensor x, int input) -> ()", c10::AliasAnalysisKind::CONSERVATIVE), note_shape);
}

}  // namespace onnxtorch
