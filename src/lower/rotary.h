// Rotary position embedding, as exporters write it out: the halves of each row are turned by an angle for each element.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_rotary_embeddings(Program& program);

}  // namespace onnxtorch
