// A weight in the layouts that primitives want; those that want the same one share it.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "lower/onednn/primitives.h"

namespace onnxtorch::onednn {

class LaidWeight {
 public:
  // The name tells the weights of one operator apart where they are saved.
  explicit LaidWeight(std::string name = "weight") : name_(std::move(name)) {}

  Laid get(const dnnl::memory& plain, const dnnl::memory::desc& wanted) const;

  std::vector<SavedWeights> saved() const;
  void take(const std::vector<SavedWeights>& saved) const;

 private:
  std::string layout_of(const dnnl::memory::desc& desc) const;

  const std::string name_;
  mutable std::mutex mutex_;
  mutable std::vector<Laid> laid_;
  mutable std::vector<SavedWeights> saved_;  // by another object
};

}  // namespace onnxtorch::onednn
