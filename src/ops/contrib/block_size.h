// The number of channels that com.microsoft.nchwc has in a block.
#pragma once

#include <cstdint>

#include "translate/translator.h"

namespace onnxtorch {

// Gives 8 or 16, as the model's weights tell; where they tell nothing, as onnxruntime has it on this CPU.
int64_t block_size(Translator& t, const NodeView& n);

}  // namespace onnxtorch
