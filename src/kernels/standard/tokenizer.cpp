#include "kernels/standard/tokenizer.h"

#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "kernels/standard/texts.h"

namespace onnxtorch {
namespace {

using Parts = std::vector<std::string_view>;

int64_t count_characters(std::string_view text) {
  int64_t count = 0;
  for (; !text.empty(); ++count) take_code_point(text);
  return count;
}

// Gives the size of the first character in bytes; 1 at the end of a text, so that a search always gets on.
size_t first_size(std::string_view text) {
  if (text.empty()) return 1;
  std::string_view rest = text;
  take_code_point(rest);
  return text.size() - rest.size();
}

Parts characters(std::string_view text) {
  Parts parts;
  while (!text.empty()) {
    const size_t size = first_size(text);
    parts.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return parts;
}

// Looks for matches from `start` on: for each, found(position, match) says where to look for the next.
template <typename Found>
void for_matches(const RE2& expression, std::string_view text, const Found& found) {
  const re2::StringPiece whole(text.data(), text.size());
  re2::StringPiece match;
  for (size_t start = 0; start <= text.size();) {
    if (!expression.Match(whole, start, text.size(), RE2::UNANCHORED, &match, 1)) return;
    const size_t position = match.data() - text.data();
    start = found(position, text.substr(position, match.size()));
  }
}

// Splits a text at its separators. A match of nothing takes the character after it away as well.
void split(const RE2& separator, std::string_view text, int64_t mincharnum, Parts& parts) {
  const auto keep = [&](std::string_view part) {
    if (count_characters(part) >= mincharnum) parts.push_back(part);
  };
  size_t end = 0;  // of the last match
  for_matches(separator, text, [&](size_t position, std::string_view match) {
    keep(text.substr(end, position - end));
    end = position + (match.empty() ? first_size(text.substr(position)) : match.size());
    return end;
  });
  if (end < text.size()) keep(text.substr(end));
}

// Finds the tokens of a text. After a match that is too short, the search goes on behind its first character.
void find_tokens(const RE2& token, std::string_view text, int64_t mincharnum, Parts& parts) {
  for_matches(token, text, [&](size_t position, std::string_view match) {
    if (count_characters(match) < mincharnum) return position + first_size(text.substr(position));
    parts.push_back(match);
    return position + match.size();
  });
}

std::unique_ptr<const RE2> longest_match(const std::string& pattern) {
  RE2::Options options(RE2::Quiet);
  options.set_longest_match(true);
  auto expression = std::make_unique<const RE2>(pattern, options);
  TORCH_CHECK_VALUE(expression->ok(), "Tokenizer: '", pattern, "' is not a valid RE2 pattern: ", expression->error());
  return expression;
}

}  // namespace

Tokenizer::Tokenizer(Attributes attributes) : attributes_(std::move(attributes)) {
  const auto& [separators, tokenexp, pad_value, mincharnum, mark] = attributes_;
  TORCH_CHECK_VALUE(!separators.empty() || !tokenexp.empty(), "Tokenizer: there is neither a separator nor a tokenexp");
  TORCH_CHECK_VALUE(mincharnum > 0, "Tokenizer: mincharnum must be positive, not ", mincharnum);
  of_characters_ = separators.empty() ? tokenexp == "." : separators.size() == 1 && separators[0].empty();
  TORCH_CHECK_VALUE(!of_characters_ || mincharnum == 1, "Tokenizer: mincharnum is ", mincharnum,
                    ", but tokens are characters");
  if (of_characters_) return;
  for (const std::string& separator : separators) expressions_.push_back(longest_match(separator));
  if (separators.empty()) expressions_.push_back(longest_match(tokenexp));
}

Parts Tokenizer::tokens(std::string_view text) const {
  count_characters(text);  // RE2 takes bytes that are not valid UTF-8 as well
  if (of_characters_) return characters(text);
  Parts parts;
  if (attributes_.separators.empty()) {
    find_tokens(*expressions_[0], text, attributes_.mincharnum, parts);
    return parts;
  }
  parts.push_back(text);
  for (const auto& separator : expressions_) {
    Parts smaller;
    for (const std::string_view part : parts) split(*separator, part, attributes_.mincharnum, smaller);
    parts = std::move(smaller);
  }
  return parts;
}

at::Tensor Tokenizer::operator()(StringPool& pool, const at::Tensor& x) const {
  TORCH_CHECK_VALUE(x.dim() == 1 || x.dim() == 2, "Tokenizer takes a tensor of shape [C] or [N, C], not ", x.sizes());
  std::vector<int64_t> shape = x.sizes().vec();
  if (x.numel() == 0) {  // [0] stays [0], and [N, C] becomes [N, 0]
    shape.back() = 0;
    return at::empty(shape, x.options());
  }
  const at::Tensor in = on_host(x);
  const int64_t* ids = in.const_data_ptr<int64_t>();
  std::vector<Parts> rows;
  size_t width = 0;
  for (int64_t i = 0; i < in.numel(); ++i) {
    rows.push_back(tokens(pool.at(ids[i])));
    width = std::max(width, rows.back().size());
  }
  if (attributes_.mark && width > 0) width += 2;  // where there is no token at all, there are no marks
  shape.push_back(static_cast<int64_t>(width));
  at::Tensor out = at::full(shape, pool.intern(attributes_.pad_value), at::kLong);
  int64_t* row = out.mutable_data_ptr<int64_t>();
  for (const Parts& parts : rows) {
    int64_t* next = row;
    const bool mark = attributes_.mark && width > 0;
    if (mark) *next++ = pool.intern("\x02");
    // Interning never moves a string of the pool, so the parts stay valid.
    for (const std::string_view part : parts) *next++ = pool.intern(part);
    if (mark) *next++ = pool.intern("\x03");
    row += width;
  }
  return out.to(x.device());
}

namespace {

// A state: separators, {tokenexp, pad_value}, {mincharnum, mark}
using State = std::tuple<std::vector<std::string>, std::vector<std::string>, std::vector<int64_t>>;

constexpr auto get_state = [](const c10::intrusive_ptr<Tokenizer>& self) -> State {
  const auto& [separators, tokenexp, pad_value, mincharnum, mark] = self->attributes();
  return {separators, {tokenexp, pad_value}, {mincharnum, mark}};
};

constexpr auto from_state = [](const State& state) {
  const auto& [separators, texts, ints] = state;
  TORCH_CHECK(texts.size() == 2 && ints.size() == 2, "not the state of a Tokenizer");
  return c10::make_intrusive<Tokenizer>(Tokenizer::Attributes{separators, texts[0], texts[1], ints[0], ints[1] != 0});
};

at::Tensor tokenize(const c10::intrusive_ptr<StringPool>& pool, const at::Tensor& x,
                    const c10::intrusive_ptr<Tokenizer>& tokenizer) {
  return (*tokenizer)(*pool, x);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  register_string_pool();
  m.class_<Tokenizer>("Tokenizer").def_static("make", from_state).def_pickle(get_state, from_state);

  // Tokenizer: [C] or [N, C] texts to [C, D] or [N, C, D] tokens.
  m.def(
      "tokenize(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor x, "
      "__torch__.torch.classes.onnx_torch.Tokenizer tokenizer) -> Tensor");
  m.impl("tokenize", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(tokenize));
}

}  // namespace onnxtorch
