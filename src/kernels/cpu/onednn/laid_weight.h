// A weight in the layouts that primitives want; those that want the same one share it.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fork_safe.h"
#include "kernels/cpu/onednn/primitives.h"

namespace onnxtorch::onednn {

// Gives the tensor without its elements, on the meta device: primitives are described by it, and take no memory from
// it.
at::Tensor form_of(const at::Tensor& t);

class LaidWeight {
 public:
  // The name tells the weights of one operator apart where they are saved.
  explicit LaidWeight(std::string name = "weight") : name_(std::move(name)) {}
  // Holds the weight as well, until it is laid out: then it is made anew where it is asked for.
  explicit LaidWeight(const at::Tensor& plain, std::string name = "weight");
  // Does the same for a weight of this form, which `make` makes each time it is asked for, until it is laid out.
  LaidWeight(at::Tensor form, std::function<at::Tensor()> make);

  // Gives the weight in the wanted layout. `plain` is the weight; without memory, it tells how the one held is to be
  // taken.
  Laid get(const dnnl::memory& plain, const dnnl::memory::desc& wanted) const;
  // Gives the layout that the weight was laid out in first, if it was, by its dimensions as primitives describe them.
  dnnl::memory::desc first() const;
  // A layout of kernels of our own, by a name for it: `lay` makes bytes of the weight, and `restore` makes the weight
  // of them. Saved ones are taken only if they are `sound`, as kernels trust what tells them where to read.
  struct Own {
    std::string name;
    std::function<at::Tensor(const at::Tensor&)> lay, restore;
    std::function<bool(const at::Tensor&)> sound;
  };
  // Gives the weight, which must be held, in the only such layout.
  at::Tensor get(const Own& layout) const;
  // Gives the weight, which must be held; form() gives the same without memory.
  at::Tensor plain() const;
  const at::Tensor& form() const { return form_; }

  std::vector<SavedWeights> saved() const;
  void take(const std::vector<SavedWeights>& saved) const;

 private:
  std::string layout_of(const dnnl::memory::desc& desc) const;
  at::Tensor restored() const;
  void release(const dnnl::memory::desc& plain, const dnnl::memory::desc& laid) const;

  const std::string name_;
  mutable ForkSafeMutex mutex_;
  mutable std::vector<Laid> laid_;
  mutable std::optional<SavedWeights> own_;   // the bytes that kernels of our own take
  mutable std::vector<SavedWeights> saved_;   // those that another object has laid out
  at::Tensor form_;                           // of the weight held, on the meta device
  mutable std::function<at::Tensor()> held_;  // gives the weight; empty where it can be made of the first in laid_
  mutable dnnl::memory::desc held_as_;        // how the weight held was taken
};

}  // namespace onnxtorch::onednn
