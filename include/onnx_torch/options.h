// How a model is prepared. The names are the same in Python and on the command line.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace onnxtorch {

struct Options {
  std::string device = "CPU";                  // "CPU" or "CUDA:n"
  int threads = 0;                             // that one run uses on the CPU; 0: as many as the process does
  std::map<std::string, int64_t> shapes = {};  // sizes of symbolic dimensions, by their names
};

}  // namespace onnxtorch
