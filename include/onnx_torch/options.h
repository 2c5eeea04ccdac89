// The options by which a model is prepared. The names are the same in Python and on the command line.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace onnxtorch {

// The limits of what a model may use. See docs/security.md.
struct Limits {
  // The limits of one run: this is its time.
  double seconds = std::numeric_limits<double>::infinity();
  double memory = std::numeric_limits<double>::infinity();  // bytes of tensors, besides the weights and the inputs
  double max_iterations = std::numeric_limits<double>::infinity();  // those of one Loop

  // The limits while a model is prepared: this is its time.
  double prepare_seconds = std::numeric_limits<double>::infinity();
  double nodes = 1e6;  // those of the model once functions are inlined
  // The bytes of what is computed of constants alone, all together; what would be more is left to the run. Never more
  // than the machine has.
  double constant_bytes = std::numeric_limits<double>::infinity();

  // Tells whether any of them concerns runs.
  bool guard_runs() const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    return seconds != kNone || memory != kNone || max_iterations != kNone;
  }

  bool operator==(const Limits&) const = default;
};

struct Options {
  std::string device = "CPU";                  // "CPU" or "CUDA:n"
  std::string precision = "float32";           // that of products with weights: "float32", "bfloat16" or "float16"
  bool tf32 = false;                           // whether float32 products on CUDA may be computed in TF32
  std::optional<bool> cuda_graphs = {};        // whether runs on CUDA are recorded; none: where they can be
  bool optimize = true;                        // false: the model's operators one by one, as they are translated
  std::set<std::string> disabled_passes = {};  // optimizations to leave out, by their names
  int threads = 0;                             // threads that one run uses on the CPU; 0: as many as the process does
  std::map<std::string, int64_t> shapes = {};  // sizes of open dimensions, by their symbols or as "input[axis]"
  Limits limits = {};                          // the limits of runs; one that takes or uses too much is a StoppedError
  std::string allow_aten = "checked";          // the operators of ATen nodes: "checked" ones, or "all" that ATen has
  std::string links = "follow";                // "refuse": files of external data that are links, or have hard links
  bool map_external = false;                   // files of external data are mapped, and must not be cut while it lives
  int plans = 8;                               // for how many sizes of the inputs, at most, runs on the CPU keep a plan
  // Outputs of which runs give the last element along dimension 1 alone, and compute no more: those of the last token,
  // of a decoder's logits. Names that are no outputs say nothing.
  std::set<std::string> last_only = {};
};

}  // namespace onnxtorch
