// A weight in the layouts that primitives want; those that want the same one share it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/cpu/onednn/primitives.h"
#include "kernels/cpu/packed/held_weight.h"

namespace onnxtorch::onednn {

class LaidWeight : public HeldWeight {
 public:
  explicit LaidWeight(std::string name = "weight") : HeldWeight(std::move(name)) {}  // holds nothing
  explicit LaidWeight(const at::Tensor& plain, std::string name = "weight") : HeldWeight(plain, std::move(name)) {}
  LaidWeight(at::Tensor form, std::function<at::Tensor()> make) : HeldWeight(std::move(form), std::move(make)) {}

  using HeldWeight::get;
  // Gives the weight in the wanted layout. `plain` is the weight; without memory, it tells how the one held is to be
  // taken.
  Laid get(const dnnl::memory& plain, const dnnl::memory::desc& wanted) const;
  // Gives the layout that the weight was laid out in first, if it was, by its dimensions as primitives describe them.
  dnnl::memory::desc first() const;

  // Gives what a saved model holds of the weight, with the layout. No caller has a LaidWeight as a HeldWeight.
  // NOLINTNEXTLINE(bugprone-derived-method-shadowing-base-method)
  std::vector<SavedWeights> saved() const;

 private:
  std::string layout_of(const dnnl::memory::desc& desc) const;
  void release(const dnnl::memory::desc& plain, const dnnl::memory::desc& laid) const;

  mutable std::vector<Laid> laid_;
};

}  // namespace onnxtorch::onednn
