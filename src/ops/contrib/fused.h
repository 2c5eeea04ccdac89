// The functions of operators that stand for several nodes of the standard, or for one in another layout.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "translate/translator.h"

namespace onnxtorch {

// Makes a node with other inputs.
NodeView with_inputs(Translator& t, const NodeView& n, Values inputs);

// Translates a node as if it were one of the standard's operator `op`, in the version that an opset has. Its attributes
// are those of the node, defaults too.
Values standard(Translator& t, const NodeView& n, const std::string& op, Values inputs, int64_t opset);
Values standard(Translator& t, const NodeView& n, const std::string& op, Values inputs);  // in the newest version

// Gives y behind the activation that the attributes name; y itself where they name none.
Value activated(Translator& t, const NodeView& n, const Value& y);

// Translates Conv, the sum with a fourth input, and an activation.
Values fused_conv(Translator& t, const NodeView& n);

// Translates QLinearAveragePool of images with the channels second.
Values qlinear_average_pool(Translator& t, const NodeView& n);

// A layout of images: the function that makes them plain, with the channels second, and the one that brings them into
// it.
struct ImageLayout {
  std::function<Value(Translator&, const Value&)> plain, laid_out;
};

ImageLayout channels_last();

// Makes the translator of a node whose images are laid out so: these inputs and the first output.
TranslateFunction in_layout(ImageLayout layout, TranslateFunction translate, std::vector<size_t> images = {0});

}  // namespace onnxtorch
