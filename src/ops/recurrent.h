// The recurrent layer that onnxruntime adds to the standard's.
#pragma once

#include "translate/translator.h"

namespace onnxtorch {

Values dynamic_quantize_lstm(Translator& t, const NodeView& n);

}  // namespace onnxtorch
