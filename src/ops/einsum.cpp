// Einsum. Most equations that exporters write multiply two operands as matrices, so these become the permutations,
// reshapes and the product that they stand for, which passes know. All others are ATen's.
#include "ops/einsum.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/arithmetic.h"

namespace onnxtorch {
namespace {

// Letters, each of which stands for a dimension.
using Letters = std::string;
using Sizes = std::vector<std::optional<int64_t>>;

bool has(const Letters& letters, char letter) { return letters.find(letter) != Letters::npos; }

// Gives the letters that meet a condition, in their order.
template <typename Condition>
Letters those(const Letters& letters, const Condition& condition) {
  Letters result;
  std::ranges::copy_if(letters, std::back_inserter(result), condition);
  return result;
}

// The dimensions of an equation "a,b->result", by what a product of matrices makes of them: batch dimensions, in which
// all agree, those over which it sums, rows and columns.
struct MatrixProduct {
  Letters a, b, result, batch = {}, rows = {}, summed = {}, columns = {};

  Letters product() const { return batch + rows + columns; }
};

std::optional<MatrixProduct> classified(const Letters& a, const Letters& b, const Letters& result) {
  MatrixProduct p{.a = a, .b = b, .result = result};
  p.batch = those(result, [&](char letter) { return has(a, letter) && has(b, letter); });
  p.rows = those(result, [&](char letter) { return has(a, letter) && !has(b, letter); });
  p.columns = those(result, [&](char letter) { return !has(a, letter) && has(b, letter); });
  p.summed = those(a, [&](char letter) { return has(b, letter) && !has(result, letter); });
  const size_t shared = p.batch.size() + p.summed.size();
  const bool fits = a.size() == shared + p.rows.size() && b.size() == shared + p.columns.size() &&
                    result.size() == p.product().size() && !p.rows.empty() && !p.summed.empty() && !p.columns.empty();
  return fits ? std::optional(std::move(p)) : std::nullopt;
}

// An equation whose terms have neither an ellipsis nor a letter twice.
struct Equation {
  std::vector<Letters> terms;
  Letters result;
};

bool is_plain(const Letters& term) {
  return std::ranges::all_of(term, [&](char letter) {
    return std::isalpha(static_cast<unsigned char>(letter)) != 0 && std::ranges::count(term, letter) == 1;
  });
}

// Reads an equation. Gives none for one that is left to ATen, as one without a result is.
std::optional<Equation> read(std::string text) {
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  if (arrow == std::string::npos) return {};
  Equation equation{.terms = {}, .result = text.substr(arrow + 2)};
  for (size_t begin = 0; begin <= arrow;) {
    const size_t end = std::min(text.find(',', begin), arrow);
    equation.terms.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool are_plain = std::ranges::all_of(equation.terms, is_plain) && is_plain(equation.result);
  return are_plain ? std::optional(std::move(equation)) : std::nullopt;
}

// An operand with its letters.
struct Operand {
  Value x;
  Letters letters;
  Sizes sizes;

  size_t dim(char letter) const { return letters.find(letter); }
};

// Gives x with its dimensions in another order.
Value ordered(Translator& t, const Value& x, const Letters& letters, const Letters& order) {
  if (letters == order) return x;
  std::vector<int64_t> perm;
  for (const char letter : order) perm.push_back(static_cast<int64_t>(letters.find(letter)));
  return t.call("aten::permute", {x, perm});
}

// Flattens `count` dimensions, from `place` on, into one.
Value joined(Translator& t, const Value& x, size_t place, size_t count) {
  if (count == 1) return x;
  const auto first = static_cast<int64_t>(place);
  return t.call("aten::flatten", {x, first, first + static_cast<int64_t>(count) - 1});
}

Value size_of(Translator& t, const Operand& of, char letter) {
  const size_t dim = of.dim(letter);
  return of.sizes[dim] ? t.scalar(*of.sizes[dim]) : t.call("aten::size", {of.x, static_cast<int64_t>(dim)});
}

// Gives the sizes of the product, in which an operand whose batch dimension has one element is broadcast.
Values sizes_of_product(Translator& t, const MatrixProduct& p, const Operand& a, const Operand& b,
                        const Value& product) {
  Values sizes;
  for (const char letter : p.batch) {
    const auto in_a = a.sizes[a.dim(letter)], in_b = b.sizes[b.dim(letter)];
    const auto known = in_a && *in_a != 1 ? in_a : in_b && *in_b != 1 ? in_b : std::nullopt;
    sizes.push_back(known ? t.scalar(*known) : t.call("aten::size", {product, std::ssize(sizes)}));
  }
  for (const char letter : p.rows) sizes.push_back(size_of(t, a, letter));
  for (const char letter : p.columns) sizes.push_back(size_of(t, b, letter));
  return sizes;
}

// Multiplies matrices. Without batch dimensions, aten::matmul takes any number of dimensions as rows.
Value multiplied(Translator& t, const MatrixProduct& p, const Operand& a, const Operand& b) {
  const size_t batch = p.batch.size();
  const bool joins_rows = batch > 0 && p.rows.size() > 1;
  Value left = ordered(t, a.x, a.letters, p.batch + p.rows + p.summed);
  left = joined(t, left, batch + p.rows.size(), p.summed.size());
  if (joins_rows) left = joined(t, left, batch, p.rows.size());
  Value right = ordered(t, b.x, b.letters, p.batch + p.summed + p.columns);
  right = joined(t, right, batch + p.summed.size(), p.columns.size());
  right = joined(t, right, batch, p.summed.size());
  Value product = t.call("aten::matmul", {left, right});
  if (joins_rows || p.columns.size() > 1)
    product = t.call("aten::reshape", {product, t.list(sizes_of_product(t, p, a, b, product))});
  return ordered(t, product, p.product(), p.result);
}

// Gives an operand with what is known of its sizes; none where it is known to have not as many dimensions as letters.
// Where nothing is known, the permutation fails in a run if it has not.
std::optional<Operand> operand(Translator& t, const Value& x, const Letters& letters) {
  if (auto sizes = t.known_sizes(x))
    return sizes->size() == letters.size() ? std::optional(Operand{x, letters, *std::move(sizes)}) : std::nullopt;
  std::vector<int64_t> perm(letters.size());
  std::iota(perm.begin(), perm.end(), 0);
  return Operand{t.call("aten::permute", {x, perm}), letters, Sizes(letters.size())};
}

// Gives an operand whose dimensions of these letters have the sizes of another's where its own is one.
Value broadcast(Translator& t, const Operand& x, const Letters& letters, const Operand& other) {
  const auto differs = [&](char letter) {
    const auto own = x.sizes[x.dim(letter)];
    return !own || own != other.sizes[other.dim(letter)];
  };
  if (std::ranges::none_of(letters, differs)) return x.x;
  Values sizes;
  for (const char letter : x.letters) {
    const bool is_open = has(letters, letter) && differs(letter);
    sizes.push_back(is_open ? t.call("broadcast_size", {size_of(t, x, letter), size_of(t, other, letter)})
                            : t.scalar(-1));
  }
  return t.call("aten::expand", {x.x, t.list(sizes)});
}

// Multiplies the operands as matrices; gives an absent value where the equation does not.
Value product(Translator& t, const Equation& equation, const Values& operands) {
  auto p = classified(equation.terms[0], equation.terms[1], equation.result);
  if (!p) return {};
  auto a = operand(t, operands[0], p->a), b = operand(t, operands[1], p->b);
  if (!a || !b) return {};
  const Value of_a = broadcast(t, *a, p->summed, *b);
  b->x = broadcast(t, *b, p->summed, *a);
  a->x = of_a;
  if (p->result == p->batch + p->columns + p->rows) {  // so that the result need not be permuted
    std::swap(p->rows, p->columns);
    std::swap(a, b);
  }
  return multiplied(t, *p, *a, *b);
}

// Gives the operand with its dimensions in another order; an absent value where the equation asks for more.
Value permutation(Translator& t, const Equation& equation, const Values& operands) {
  const Letters& letters = equation.terms[0];
  if (!std::ranges::is_permutation(letters, equation.result)) return {};
  const auto x = operand(t, operands[0], letters);
  return x ? ordered(t, x->x, letters, equation.result) : Value();
}

// Computes an equation by permutations and products of matrices. Gives an absent value where only ATen computes it.
Value by_matrices(Translator& t, const std::string& text, const Values& operands) {
  const auto equation = read(text);
  if (!equation || equation->terms.size() != operands.size() || operands.size() > 2) return {};
  return operands.size() == 1 ? permutation(t, *equation, operands) : product(t, *equation, operands);
}

}  // namespace

// Translates Einsum. Sums of integers are int64 in ATen, so all operands become that.
Values einsum(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  const std::string equation = n.attr_string("equation");
  Values operands = n.tensors();
  if (is_floating(type)) {
    const Value result = by_matrices(t, equation, operands);
    return {!result.absent() ? result : t.call("aten::einsum", {equation, operands})};
  }
  for (Value& operand : operands) operand = t.call("aten::to", {operand, c10::kLong});
  const Value sum = t.call("aten::einsum", {equation, operands});
  return {wrapped(t, t.call("aten::to", {sum, type}), type)};
}

}  // namespace onnxtorch
