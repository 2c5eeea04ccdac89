// The translation of a model to a program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/program.h"
#include "import/external_data.h"
#include "onnx_torch/options.h"
#include "translate/scripts.h"

namespace onnxtorch {

struct ModelFile;
struct Problem;

// One graph of a model among those that callers may ask for.
struct Variant {
  std::set<std::string> overridden;      // initializers that the caller feeds
  std::vector<std::string> outputs;      // values of the main graph that the caller wants; none: the model's outputs
  std::set<std::string> last_only = {};  // outputs of which it wants the last element along dimension 1 and no more
  bool timed = false;                    // a NodeTimer is told when each node begins and ends
  bool guarded = false;                  // a RunGuard is asked in front of each node and each iteration
  std::vector<std::vector<int64_t>> sizes = {};  // the sizes of each input in a run, to try facts with; none: any run

  auto operator<=>(const Variant&) const = default;
};

struct TranslateOptions {
  Variant variant;
  std::map<std::string, int64_t> shapes;  // sizes of symbolic dimensions
  std::optional<size_t> watched;          // the number of a node whose input shapes are noted when it runs
  bool trainable = false;                 // floating initializers may change later: no tensor is computed from them now
  KeptScripts keeps = nullptr;            // the scripts that are one node each, for the passes of a device to find
  bool reads_back = true;                 // where there is a choice, numbers in tensors decide what a run does
  bool any_aten = false;                  // ATen nodes may call any operator, which one who trusts the model allows
  ExternalAccess external = {};           // how files of external data are read
  Limits limits = {};                     // the limits on translating, and on folding afterwards
};

// Translates a model. The program's constants may be views of the model, which they then keep.
Program translate(const std::shared_ptr<const ModelFile>& model, const TranslateOptions& options = {});

// Gives the reasons why nodes cannot be translated: of each that fails by itself, not just as another did. There are
// none where all can be.
std::vector<Problem> translation_problems(const std::shared_ptr<const ModelFile>& model,
                                          const TranslateOptions& options = {});

}  // namespace onnxtorch
