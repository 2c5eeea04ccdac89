// Tokenizer of com.microsoft: the parts of a text between matches of regular expressions, or the matches of one. Made
// once from the node's attributes.
#pragma once

#include <ATen/core/Tensor.h>
#include <re2/re2.h>
#include <torch/custom_class.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/string_pool.h"

namespace onnxtorch {

class Tokenizer : public torch::CustomClassHolder {
 public:
  // The attributes, named as in the schema. Without separators, tokenexp is the one expression.
  struct Attributes {
    std::vector<std::string> separators;
    std::string tokenexp, pad_value;
    int64_t mincharnum;
    bool mark;
  };

  explicit Tokenizer(Attributes attributes);
  const Attributes& attributes() const { return attributes_; }

  // Turns texts of shape [C] or [N, C], as ids, into their tokens: of shape [C, D] or [N, C, D].
  at::Tensor operator()(StringPool& pool, const at::Tensor& x) const;

 private:
  std::vector<std::string_view> tokens(std::string_view text) const;

  Attributes attributes_;
  bool of_characters_;
  std::vector<std::unique_ptr<const RE2>> expressions_;
};

}  // namespace onnxtorch
