#include "runtime/dumped.h"

#include <cstdlib>
#include <sstream>

namespace onnxtorch {

bool is_dumped(const std::string& step) {
  const char* const wanted = std::getenv("ONNX_TORCH_DUMP");
  if (!wanted) return false;
  std::istringstream names{wanted};
  for (std::string name; std::getline(names, name, ',');) {
    if (name == step || name == "all") return true;
  }
  return false;
}

}  // namespace onnxtorch
