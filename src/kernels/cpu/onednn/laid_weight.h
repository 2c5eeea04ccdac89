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

// The tensor without its elements, on the meta device: primitives are described by it, and take no memory from it.
at::Tensor form_of(const at::Tensor& t);

class LaidWeight {
 public:
  // The name tells the weights of one operator apart where they are saved.
  explicit LaidWeight(std::string name = "weight") : name_(std::move(name)) {}
  // Holds the weight as well, until it is laid out: then it is made anew where it is asked for.
  explicit LaidWeight(const at::Tensor& plain, std::string name = "weight");
  // The same of a weight, which looks like `form`, that is made each time it is asked for until it is laid out.
  LaidWeight(at::Tensor form, std::function<at::Tensor()> make);

  // `plain` is the weight; without memory, it is how the one held is to be taken.
  Laid get(const dnnl::memory& plain, const dnnl::memory::desc& wanted) const;
  // The layout that it was laid out in first, if it was, by the weight's dimensions as primitives describe them.
  dnnl::memory::desc first() const;
  // The layout of kernels of our own, by a name for it: bytes that `lay` makes of the weight, and `restore` the weight
  // of them. Saved ones are taken only if they are `sound`, as kernels trust what tells them where to read.
  struct Own {
    std::string name;
    std::function<at::Tensor(const at::Tensor&)> lay, restore;
    std::function<bool(const at::Tensor&)> sound;
  };
  // Of one that holds it, in the only such layout.
  at::Tensor get(const Own& layout) const;
  // Of one that holds it: the weight, and the same without memory.
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
  mutable std::vector<SavedWeights> saved_;   // by another object
  at::Tensor form_;                           // of the weight held, on the meta device
  mutable std::function<at::Tensor()> held_;  // nothing where it can be made of the first that was laid out
  mutable dnnl::memory::desc held_as_;        // how that was taken
};

}  // namespace onnxtorch::onednn
