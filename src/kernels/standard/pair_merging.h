// Byte pair encoding: of the pairs of neighbours that may be merged, the first in order is, until there is none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace onnxtorch {

// What a pair of neighbours becomes, and when: pairs of lower ranks are merged first.
template <typename Token>
struct Merged {
  double rank;
  Token token;
};

// Merges pairs of neighbours, the pair of the lowest rank first, and of equal ranks the first in the list.
// merge(first, second) gives an optional Merged<Token>; it is called once for each pair of neighbours.
template <typename Token, typename Merge>
void merge_pairs(std::vector<Token>& tokens, const Merge& merge) {
  constexpr int64_t kNone = -1;
  struct Part {
    Token token;
    bool is_gone;
    int64_t before, after;
  };
  struct Pair {
    double rank;
    int64_t at;
    Token first, second, merged;
    bool operator>(const Pair& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
  };
  const int64_t count = std::ssize(tokens);
  std::vector<Part> parts(count);
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs;
  const auto add_pair = [&](int64_t at) {
    if (at == kNone || parts[at].after == kNone) return;
    const Token &first = parts[at].token, &second = parts[parts[at].after].token;
    if (const std::optional<Merged<Token>> merged = merge(first, second)) {
      pairs.push({merged->rank, at, first, second, merged->token});
    }
  };
  for (int64_t i = 0; i < count; ++i) parts[i] = {tokens[i], false, i - 1, i + 1 < count ? i + 1 : kNone};
  for (int64_t i = 0; i < count; ++i) add_pair(i);
  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    Part& first = parts[pair.at];
    // A pair may be none any more: one of its parts has become part of another.
    if (first.is_gone || first.token != pair.first || first.after == kNone) continue;
    Part& second = parts[first.after];
    if (second.token != pair.second) continue;
    first.token = pair.merged;
    second.is_gone = true;
    first.after = second.after;
    if (first.after != kNone) parts[first.after].before = pair.at;
    add_pair(first.before);
    add_pair(pair.at);
  }
  tokens.clear();
  for (int64_t i = count > 0 ? 0 : kNone; i != kNone; i = parts[i].after) tokens.push_back(parts[i].token);
}

}  // namespace onnxtorch
