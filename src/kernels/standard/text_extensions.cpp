// Operators on strings that onnxruntime-extensions adds: replacing and splitting by patterns, joining, letters' case.
#include <re2/re2.h>
#include <torch/library.h>

#include <array>
#include <vector>

#include "kernels/standard/texts.h"

namespace onnxtorch {
namespace {

using at::Tensor;

const std::string& single(const StringPool& pool, const Tensor& x, const char* what) {
  TORCH_CHECK_VALUE(x.numel() == 1, what, " must be one string, not ", x.numel());
  return pool.at(on_host(x).item<int64_t>());
}

void check_pattern(const RE2& regex) {
  TORCH_CHECK_VALUE(regex.ok(), "'", regex.pattern(), "' is not a valid RE2 pattern: ", regex.error());
}

// ---- StringRegexReplace -------------------------------------------------------------------------------------------

Tensor regex_replace(const Pool& pool, const Tensor& text, const Tensor& pattern, const Tensor& rewrite, bool global) {
  const RE2 regex(single(*pool, pattern, "the pattern"), RE2::Quiet);
  check_pattern(regex);
  TORCH_CHECK_VALUE(!regex.pattern().empty(), "the pattern must not be empty");
  const std::string& written = single(*pool, rewrite, "the rewrite");
  std::string error;
  TORCH_CHECK_VALUE(regex.CheckRewriteString(written, &error), "'", written, "' does not fit the pattern: ", error);
  return intern_each<int64_t>(*pool, text, [&](int64_t id) {
    std::string changed = pool->at(id);
    if (global) {
      RE2::GlobalReplace(&changed, regex, written);
    } else {
      RE2::Replace(&changed, regex, written);
    }
    return changed;
  });
}

// ---- StringRegexSplitWithOffsets ----------------------------------------------------------------------------------

struct Words {
  std::vector<int64_t> ids, begins, ends;
};

void add_word(StringPool& pool, const std::string& text, size_t begin, size_t end, Words& words) {
  if (begin == end) return;
  words.ids.push_back(pool.intern(std::string_view(text).substr(begin, end - begin)));
  words.begins.push_back(static_cast<int64_t>(begin));
  words.ends.push_back(static_cast<int64_t>(end));
}

// Splits a text into words. What the first group of the pattern matches delimits words, and is one itself where it
// matches `kept`. A match of nothing delimits nothing.
void split_by(const RE2& delimiter, const RE2* kept, StringPool& pool, const std::string& text, Words& words) {
  const re2::StringPiece whole(text);
  size_t begin = 0, from = 0;
  std::array<re2::StringPiece, 2> match;  // as a whole, and its first group
  while (delimiter.Match(whole, from, text.size(), RE2::UNANCHORED, match.data(), match.size())) {
    const auto at = static_cast<size_t>(match[0].data() - text.data());
    const size_t after = at + match[0].size();
    if (match[0].empty()) {
      if (after >= text.size()) break;
      from = after + 1;
      continue;
    }
    from = after;
    if (match[1].empty()) continue;
    const auto group = static_cast<size_t>(match[1].data() - text.data());
    add_word(pool, text, begin, group, words);
    if (kept && RE2::FullMatch(match[1], *kept)) add_word(pool, text, group, group + match[1].size(), words);
    begin = after;
  }
  add_word(pool, text, begin, text.size(), words);
}

// Gives the words, where in bytes they begin and end in their text, and at which word each text begins, and the number
// of all.
std::tuple<Tensor, Tensor, Tensor, Tensor> regex_split(const Pool& pool, const Tensor& text, const Tensor& pattern,
                                                       const Tensor& keep_pattern) {
  const RE2 delimiter(single(*pool, pattern, "the splitting pattern"), RE2::Quiet);
  check_pattern(delimiter);
  TORCH_CHECK_VALUE(!delimiter.pattern().empty(), "the splitting pattern must not be empty");
  const std::string kept = keep_pattern.numel() == 0 ? "" : single(*pool, keep_pattern, "the pattern of what is kept");
  const RE2 keep(kept, RE2::Quiet);
  check_pattern(keep);
  const Tensor in = on_host(text);
  const int64_t* ids = in.const_data_ptr<int64_t>();
  Words words;
  std::vector<int64_t> rows{0};
  for (int64_t i = 0; i < in.numel(); ++i) {
    const std::string& one = pool->at(ids[i]);
    if (delimiter.NumberOfCapturingGroups() == 0) {  // the kernel of onnxruntime-extensions does not split then
      add_word(*pool, one, 0, one.size(), words);
    } else {
      split_by(delimiter, kept.empty() ? nullptr : &keep, *pool, one, words);
    }
    rows.push_back(std::ssize(words.ids));
  }
  const auto tensor = [&](const std::vector<int64_t>& values) {
    return at::tensor(values, at::kLong).to(text.device());
  };
  return {tensor(words.ids), tensor(words.begins), tensor(words.ends), tensor(rows)};
}

// ---- StringSplit --------------------------------------------------------------------------------------------------

// Splits a text at each byte of the separator, as the kernel of onnxruntime-extensions does; an empty one parts all
// bytes.
std::vector<std::string_view> parts_of(std::string_view text, std::string_view separator, bool skip_empty) {
  std::vector<std::string_view> parts;
  if (text.empty()) return parts;
  if (separator.empty()) {
    for (size_t i = 0; i < text.size(); ++i) parts.push_back(text.substr(i, 1));
    return parts;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of(separator, begin), text.size());
    if (end > begin || !skip_empty) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Gives the parts as a sparse matrix of texts and parts: indices, values and shape.
std::tuple<Tensor, Tensor, Tensor> split_sparse(const Pool& pool, const Tensor& x, const Tensor& separator,
                                                const Tensor& skip_empty) {
  TORCH_CHECK_VALUE(x.dim() == 1, "StringSplit takes a tensor of 1 dimension, not ", x.dim());
  TORCH_CHECK_VALUE(skip_empty.numel() == 1, "skip_empty must be one bool, not ", skip_empty.numel());
  const std::string& by = single(*pool, separator, "the separator");
  const bool skip = skip_empty.item<bool>();
  const Tensor in = on_host(x);
  const int64_t* ids = in.const_data_ptr<int64_t>();
  std::vector<int64_t> indices, values;
  int64_t most = 0;
  for (int64_t i = 0; i < in.numel(); ++i) {
    const auto parts = parts_of(pool->at(ids[i]), by, skip);
    most = std::max(most, std::ssize(parts));
    for (int64_t k = 0; k < std::ssize(parts); ++k) {
      indices.insert(indices.end(), {i, k});
      values.push_back(pool->intern(parts[k]));
    }
  }
  const std::vector<int64_t> shape{in.numel(), most};
  return {at::tensor(indices, at::kLong).view({-1, 2}).to(x.device()), at::tensor(values, at::kLong).to(x.device()),
          at::tensor(shape, at::kLong).to(x.device())};
}

// ---- StringJoin ---------------------------------------------------------------------------------------------------

Tensor string_join(const Pool& pool, const Tensor& x, const Tensor& separator, int64_t axis) {
  TORCH_CHECK_VALUE(axis >= 0 && axis < std::max<int64_t>(x.dim(), 1), "there is no axis ", axis, " of ", x.dim());
  const std::string& between = single(*pool, separator, "the separator");
  const Tensor in = on_host(x.dim() == 0 ? x.unsqueeze(0) : x.movedim(axis, -1));
  const int64_t count = in.size(-1);
  Tensor out = at::empty(in.sizes().slice(0, in.dim() - 1), at::kLong);
  const int64_t* ids = in.const_data_ptr<int64_t>();
  int64_t* joined = out.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    std::string text;
    for (int64_t k = 0; k < count; ++k) text.append(k == 0 ? "" : between).append(pool->at(*ids++));
    joined[i] = pool->intern(text);
  }
  // A single text is of one dimension, as onnxruntime-extensions has it.
  return (out.dim() == 0 ? out.unsqueeze(0) : out).to(x.device());
}

// ---- Letters ------------------------------------------------------------------------------------------------------

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

Tensor ascii_case(const Pool& pool, const Tensor& x, bool upper) {
  return intern_each<int64_t>(*pool, x, [&](int64_t id) {
    std::string text = pool->at(id);
    std::ranges::transform(text, text.begin(), upper ? ascii_upper : ascii_lower);
    return text;
  });
}

// Strips space from both ends. A text of nothing but space stays, as in the kernel of onnxruntime-extensions.
Tensor ascii_strip(const Pool& pool, const Tensor& x) {
  return intern_each<int64_t>(*pool, x, [&](int64_t id) {
    const std::string& text = pool->at(id);
    const auto first = std::ranges::find_if_not(text, is_ascii_space);
    if (first == text.end()) return text;
    const auto last = std::find_if_not(text.rbegin(), text.rend(), is_ascii_space);
    return std::string(first, last.base());
  });
}

// Gives how many code points there are: all bytes but those that continue one.
Tensor string_length(const Pool& pool, const Tensor& x) {
  return map_texts<int64_t>(*pool, x, [](const std::string& text) {
    return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  register_string_pool();
  constexpr auto kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;
  const auto define = [&](const std::string& signature, auto function) {
    const std::string name = signature.substr(0, signature.find('('));
    const std::string pool = "(__torch__.torch.classes.onnx_torch.StringPool pool, ";
    m.def((name + pool + signature.substr(name.size() + 1)).c_str());
    m.impl(name.c_str(), kAnyDevice, function);
  };
  define("regex_replace(Tensor text, Tensor pattern, Tensor rewrite, bool everywhere) -> Tensor",
         TORCH_FN(regex_replace));
  define("regex_split(Tensor text, Tensor pattern, Tensor keep_pattern) -> (Tensor, Tensor, Tensor, Tensor)",
         TORCH_FN(regex_split));
  define("split_sparse(Tensor x, Tensor separator, Tensor skip_empty) -> (Tensor, Tensor, Tensor)",
         TORCH_FN(split_sparse));
  define("string_join(Tensor x, Tensor separator, int axis) -> Tensor", TORCH_FN(string_join));
  define("ascii_case(Tensor x, bool upper) -> Tensor", TORCH_FN(ascii_case));
  define("ascii_strip(Tensor x) -> Tensor", TORCH_FN(ascii_strip));
  define("string_length(Tensor x) -> Tensor", TORCH_FN(string_length));
}

}  // namespace onnxtorch
