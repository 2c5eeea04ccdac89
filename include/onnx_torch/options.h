// How a model is prepared. The names are the same in Python and on the command line.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace onnxtorch {

// What one run may use at most; without end by default. See docs/security.md.
struct Limits {
  double seconds = std::numeric_limits<double>::infinity();
  double memory = std::numeric_limits<double>::infinity();  // bytes of tensors, besides the weights and the inputs

  bool operator==(const Limits&) const = default;
};

struct Options {
  std::string device = "CPU";                  // "CPU" or "CUDA:n"
  std::string precision = "float32";           // of products with weights: "float32", "bfloat16" or "float16"
  bool tf32 = false;                           // whether float32 products on CUDA may be computed in TF32
  std::optional<bool> cuda_graphs = {};        // whether runs on CUDA are recorded; none: where they can be
  bool optimize = true;                        // false: the model's operators one by one, as they are translated
  std::set<std::string> disabled_passes = {};  // optimizations to leave out, by their names
  int threads = 0;                             // that one run uses on the CPU; 0: as many as the process does
  std::map<std::string, int64_t> shapes = {};  // sizes of symbolic dimensions, by their names
  Limits limits = {};                          // on a run that takes or uses too much, which then is a StoppedError
  std::string links = "follow";                // "refuse": files of external data that are links, or have hard links
  bool map_external = false;                   // files of external data are mapped, and must not be cut while it lives
};

}  // namespace onnxtorch
