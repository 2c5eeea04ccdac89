// The parts that the kernels on strings share. A string tensor is an int64 tensor of ids into the pool; see
// string_pool.h.
#pragma once

#include <ATen/ATen.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "base/parallel.h"
#include "base/string_pool.h"

namespace onnxtorch {

using Pool = c10::intrusive_ptr<StringPool>;

inline at::Tensor on_host(const at::Tensor& x) { return x.cpu().contiguous(); }

// Gives the tensor of the ids of text_of(element), of the shape of `x`.
template <typename T, typename TextOf>
at::Tensor intern_each(StringPool& pool, const at::Tensor& x, TextOf text_of) {
  const at::Tensor in = on_host(x);
  at::Tensor out = at::empty(in.sizes(), at::kLong);
  const T* from = in.const_data_ptr<T>();
  std::transform(from, from + in.numel(), out.mutable_data_ptr<int64_t>(),
                 [&](const T& element) { return pool.intern(text_of(element)); });
  return out.to(x.device());
}

// Gives the tensor of value_of(text) for each string of `ids`.
template <typename T, typename ValueOf>
at::Tensor map_texts(const StringPool& pool, const at::Tensor& ids, ValueOf value_of) {
  const at::Tensor in = on_host(ids);
  at::Tensor out = at::empty(in.sizes(), c10::CppTypeToScalarType<T>::value);
  const int64_t* from = in.const_data_ptr<int64_t>();
  T* to = out.mutable_data_ptr<T>();
  constexpr int64_t kCost = 32;  // of a text
  parallel_for(in.numel(), kCost, [&](int64_t begin, int64_t end) {
    std::transform(from + begin, from + end, to + begin, [&](int64_t id) -> T { return value_of(pool.at(id)); });
  });
  return out.to(ids.device());
}

// Calls the function for each line that is not empty, without a carriage return at its end.
template <typename Function>
void for_each_line(std::string_view lines, const Function& function) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    std::string_view line = lines.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) function(line);
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
}

// Reads a whole text as an integer.
inline std::optional<int64_t> integer(std::string_view digits, int base = 10) {
  int64_t value = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, value, base);
  return error == std::errc() && end == last ? std::optional(value) : std::nullopt;
}

// Takes the code point at the start off `text`, and gives it.
inline char32_t take_code_point(std::string_view& text) {
  utf8proc_int32_t code = 0;
  const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &code);
  TORCH_CHECK(size > 0, "a string is not valid UTF-8");
  text.remove_prefix(size);
  return code;
}

constexpr std::string_view kReplacement = "\uFFFD";  // for bytes that are no UTF-8
constexpr std::string_view kSpaceSign = "\u2581";    // in pieces of sentencepiece, for a space

// Gives the size of the character that a text begins with; 0 where its first byte begins none.
inline size_t size_of_valid_character(std::string_view text) {
  utf8proc_int32_t code = 0;
  const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &code);
  return std::max<utf8proc_ssize_t>(size, 0);
}

// Adds a code point to a text, as UTF-8.
inline void append(std::string& text, char32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), size);
}

// Gives a text with `to` in the place of each `from`.
inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t at = 0;;) {
    const size_t found = text.find(from, at);
    result.append(text.substr(at, found - at));
    if (found == std::string_view::npos) return result;
    result.append(to);
    at = found + from.size();
  }
}

inline std::string utf8(std::u32string_view text) {
  std::string bytes;
  for (const char32_t code : text) append(bytes, code);
  return bytes;
}

// Adds the small form of a code point to a text. That of a dotted I alone is two code points.
inline void append_lower_case(std::u32string& text, char32_t code) {
  constexpr char32_t kDottedI = 0x130;
  if (code == kDottedI) {
    text.append(U"i\u0307");
  } else {
    text.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

}  // namespace onnxtorch
