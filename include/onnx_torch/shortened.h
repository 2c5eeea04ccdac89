// The shortening of texts for people that hold what a model says, however much that is.
#pragma once

#include <cstddef>
#include <string>

namespace onnxtorch {

// Shortens a message so that its names have an end: of what stands between quotation marks, of each word and of each
// line, the beginning is left.
inline std::string shortened(const std::string& message) {
  constexpr size_t kMostQuoted = 200, kMostOfWord = 400, kMostOfLine = 4000;
  if (message.size() <= kMostQuoted) return message;
  std::string result;
  size_t quoted = 0, word = 0, line = 0;  // bytes
  bool in_quotes = false, is_cut = false;
  for (const char c : message) {
    if (c == '\n') line = 0;
    if (c == '\n' || c == ' ') word = 0;
    if (c == '\n' || (c == '"' && line < kMostOfLine)) {
      in_quotes = c == '"' && !in_quotes;
      quoted = word = 0;
    }
    const bool is_within = line < kMostOfLine && word < kMostOfWord && (!in_quotes || quoted <= kMostQuoted);
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;  // a character of several bytes
    if ((is_within && !(is_cut && continues)) || (continues && !is_cut)) {
      result += c;
      ++line;
      is_cut = false;
    } else if (!is_cut) {
      result += "…";
      is_cut = true;
    }
    ++quoted, ++word;
  }
  return result;
}

}  // namespace onnxtorch
