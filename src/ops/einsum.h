// The translation of Einsum.
#pragma once

#include "translate/translator.h"

namespace onnxtorch {

Values einsum(Translator& t, const NodeView& n);

}  // namespace onnxtorch
