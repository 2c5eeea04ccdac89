// What a decoder remembers of the tokens that it has read. This is the one place that knows where the memory of it
// comes from: what a step gives is what the next step takes, and nobody writes to it, so that caches share it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onnx_torch/language_model.h"

namespace onnxtorch {

class Cache {
 public:
  // `entries` have a past each.
  explicit Cache(std::shared_ptr<const std::vector<CacheEntry>> entries) : entries_(std::move(entries)) {}

  // Undefined where no step has given it.
  at::Tensor past(const std::string& name) const;
  void take(const std::string& name, const at::Tensor& present);

  // Whether the past of fewer tokens is a part of that of more.
  bool can_rewind() const;
  void rewind(int64_t length);
  void reorder(const at::Tensor& rows);
  void clear() { held_.clear(); }

 private:
  const CacheEntry* entry(const std::string& name) const;

  std::shared_ptr<const std::vector<CacheEntry>> entries_;
  std::map<std::string, at::Tensor> held_;
};

}  // namespace onnxtorch
