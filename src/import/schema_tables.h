// The tables that the generated schema source defines beside all_schemas().
#pragma once

#include "import/schema.h"

namespace onnxtorch {

struct DomainVersion {
  std::string_view domain;
  int newest;
};

std::span<const DomainVersion> all_domains();

}  // namespace onnxtorch
