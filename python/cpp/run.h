// One run of a model from Python.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model.h"

namespace onnxtorch {

// A model, with what each of its runs needs in Python.
class PythonModel : public PreparedModel {
 public:
  PythonModel(std::shared_ptr<const ModelFile> file, const Options& options,
              std::vector<std::vector<SavedWeights>> saved);

  // Gives the names of the inputs, as dictionaries find them fastest.
  const std::vector<pybind11::str>& input_names() const { return input_names_; }

 private:
  const std::vector<pybind11::str> input_names_;
};

// Runs the model on a dictionary of inputs. Gives a list of the values named, or of the model's outputs. They come as
// torch tensors or as numpy arrays; where nothing is said, as torch tensors where one goes in. `out` is a list with the
// caller's array or tensor for each, or None: one that holds its output comes back itself, others are not touched.
pybind11::list run(const PythonModel& model, const pybind11::dict& feeds, std::vector<std::string> names,
                   std::optional<bool> as_torch, const StopFlag* stop, PreparedModel::Profile* profile = nullptr,
                   const pybind11::object& out = pybind11::none());

}  // namespace onnxtorch
