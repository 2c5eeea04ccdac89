// What operators share that stand for several nodes of the standard, or for one in another layout.
#pragma once

#include <string>

#include "translate/translator.h"

namespace onnxtorch {

// A node with other inputs.
NodeView with_inputs(Translator& t, const NodeView& n, Values inputs);

// What a node would give if it were one of the standard's operator `op`, in the version that an opset has.
Values standard(Translator& t, const NodeView& n, const std::string& op, Values inputs, int64_t opset);
Values standard(Translator& t, const NodeView& n, const std::string& op, Values inputs);  // in the newest version

// y behind the activation that the attributes name; y itself where they name none.
Value activated(Translator& t, const NodeView& n, const Value& y);

// An image whose channels are last, with the channels second, and the other way round.
Value channels_first(Translator& t, const Value& x);
Value channels_last(Translator& t, const Value& x);

// The translator of a node whose images have the channels last: these inputs and the first output.
TranslateFunction with_channels_last(TranslateFunction translate, std::vector<size_t> images);

}  // namespace onnxtorch
