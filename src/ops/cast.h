// Conversion between element types, for every family.
#pragma once

#include "translate/translator.h"

namespace onnxtorch {

struct CastOptions {
  bool saturate = true;           // to floats of 8 bits
  std::string round_mode = "up";  // to float8e8m0
};

// Casts v to another element type, as Cast defines it; v's own type must be known.
Value cast(Translator& t, Value v, ElementType to, const CastOptions& options = {});

}  // namespace onnxtorch
