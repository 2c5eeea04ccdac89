#include "language/sequences.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace onnxtorch {

Padded padded(const std::vector<Tokens>& sequences, Side side) {
  if (sequences.empty()) throw InputError("there is no sequence to begin with");
  size_t longest = 0;
  for (const Tokens& tokens : sequences) {
    if (tokens.empty()) throw InputError("a sequence must have one token at least to begin with");
    longest = std::max(longest, tokens.size());
  }
  const auto rows = static_cast<int64_t>(sequences.size());
  const auto columns = static_cast<int64_t>(longest);
  Padded result{at::zeros({rows, columns}, at::kLong), at::zeros({rows, columns}, at::kLong)};
  auto* ids = result.ids.mutable_data_ptr<int64_t>();
  auto* mask = result.mask.mutable_data_ptr<int64_t>();
  for (const Tokens& tokens : sequences) {
    const size_t begin = side == Side::Left ? longest - tokens.size() : 0;
    std::ranges::copy(tokens, ids + begin);
    std::fill_n(mask + begin, tokens.size(), 1);
    ids += longest;
    mask += longest;
  }
  return result;
}

bool of_one_length(const std::vector<Tokens>& sequences) {
  return std::ranges::all_of(sequences, [&](const Tokens& tokens) { return tokens.size() == sequences[0].size(); });
}

at::Tensor column(const Tokens& tokens) { return at::tensor(tokens, at::kLong).unsqueeze(1); }

}  // namespace onnxtorch
