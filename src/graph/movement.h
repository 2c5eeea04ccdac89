// The movement of elements by reshapes and permutations, apart from the steps that do it.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace onnxtorch {

constexpr int64_t kUnknownSize = -1;

// A view of a tensor: both have their elements in dimensions that consist of the same atoms, in another order. An atom
// is never parted; a dimension of size 1 has none. Equal movements have equal members.
class Movement {
 public:
  // Gives the movement that leaves a tensor of these sizes as it is; none where a size is 0, as that says nothing of
  // the others.
  static std::optional<Movement> none(c10::IntArrayRef sizes);

  // Gives this movement followed by another step; none where atoms do not tell what the step does.
  std::optional<Movement> permuted(c10::IntArrayRef dims) const;
  std::optional<Movement> reshaped(c10::IntArrayRef sizes) const;

  // Gives the sizes before or after the movement.
  std::vector<int64_t> from_sizes() const { return sizes_of(from_); }
  std::vector<int64_t> to_sizes() const { return sizes_of(to_); }

  // Tells whether the elements keep their order.
  bool keeps_order() const;
  // Gives the dimension of the tensor that a dimension of the view is, if it is one.
  std::optional<size_t> origin(size_t dim) const;

  // The fewest steps that do the same: a reshape, a permutation and another reshape, as far as needed. There are none
  // where a reshape would have to find out two sizes.
  struct Steps {
    std::optional<std::vector<int64_t>> first, permutation, last;
    size_t count() const { return first.has_value() + permutation.has_value() + last.has_value(); }
  };
  std::optional<Steps> steps() const;

  bool operator==(const Movement&) const = default;

 private:
  using Dims = std::vector<std::vector<size_t>>;  // the atoms of each dimension

  std::vector<int64_t> sizes_of(const Dims& dims) const;
  void split(size_t atom, int64_t first, int64_t second);
  Movement normal() const;

  std::vector<int64_t> atoms_;  // the sizes of the atoms, none of which is 1
  Dims from_, to_;
};

}  // namespace onnxtorch
