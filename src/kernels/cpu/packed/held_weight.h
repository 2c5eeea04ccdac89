// A constant weight in the layout that a kernel wants: it is laid out when it is first asked for, and then held in no
// other way.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fork_safe.h"
#include "base/saved_weights.h"

namespace onnxtorch {

// Gives the tensor without its elements, on the meta device: what is described by it takes no memory from it.
at::Tensor form_of(const at::Tensor& t);

class HeldWeight {
 public:
  // The name tells the weights of one operator apart where they are saved.
  explicit HeldWeight(const at::Tensor& plain, std::string name = "weight");
  // Holds a weight of this form, which `make` makes each time it is asked for, until it is laid out.
  HeldWeight(at::Tensor form, std::function<at::Tensor()> make);

  // A layout, by a name for it: `lay` makes bytes of the weight, and `restore` makes the weight of them. Saved ones are
  // taken only if they are `sound`, as kernels trust what tells them where to read.
  struct Layout {
    std::string name;
    std::function<at::Tensor(const at::Tensor&)> lay, restore;
    std::function<bool(const at::Tensor&)> sound;
  };
  // Gives the weight in the only such layout.
  at::Tensor get(const Layout& layout) const;
  // Gives the weight as it came; form() gives the same without memory.
  at::Tensor plain() const;
  const at::Tensor& form() const { return form_; }

  // Gives what has been laid out so far; `take` takes that of another object.
  std::vector<SavedWeights> saved() const;
  void take(const std::vector<SavedWeights>& saved) const;

 protected:
  explicit HeldWeight(std::string name) : name_(std::move(name)) {}  // holds nothing

  const std::string name_;
  mutable ForkSafeMutex mutex_;
  mutable std::vector<SavedWeights> saved_;   // those that another object has laid out
  at::Tensor form_;                           // of the weight held
  mutable std::function<at::Tensor()> make_;  // gives the weight; empty where none is held

 private:
  mutable std::optional<SavedWeights> bytes_;
};

}  // namespace onnxtorch
