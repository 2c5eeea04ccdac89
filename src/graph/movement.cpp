#include "graph/movement.h"

#include <algorithm>
#include <numeric>
#include <ranges>

namespace onnxtorch {
namespace {

using Dims = std::vector<std::vector<size_t>>;
using Sizes = std::vector<int64_t>;

std::vector<size_t> flat(const Dims& dims) {
  std::vector<size_t> result;
  for (const auto& atoms : dims) result.insert(result.end(), atoms.begin(), atoms.end());
  return result;
}

bool is_known(int64_t size) { return size != kUnknownSize; }

int64_t unknown_count(c10::IntArrayRef sizes) { return std::ranges::count(sizes, kUnknownSize); }

// Gives the product of the sizes that are known.
int64_t known_product(c10::IntArrayRef sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= is_known(size) ? size : 1;
  return product;
}

int64_t product(c10::IntArrayRef sizes) { return unknown_count(sizes) > 0 ? kUnknownSize : known_product(sizes); }

// Tells whether one list lies within the other, as a contiguous part.
bool contains(const std::vector<size_t>& all, const std::vector<size_t>& part) {
  return part.empty() || !std::ranges::search(all, part).empty();
}

// Tells whether the atoms of each dimension are contiguous in an order of all atoms.
bool are_runs(const Dims& dims, const std::vector<size_t>& order) {
  return std::ranges::all_of(dims, [&](const auto& dim) { return contains(order, dim); });
}

// Sorts the dimensions by where their atoms begin in an order of all atoms; those without any come last.
std::vector<size_t> sorted(const Dims& dims, const std::vector<size_t>& order) {
  std::vector<size_t> result(dims.size());
  std::iota(result.begin(), result.end(), 0);
  const auto place = [&](size_t dim) {
    return dims[dim].empty() ? order.end() : std::ranges::find(order, dims[dim].front());
  };
  std::ranges::stable_sort(result, {}, place);
  return result;
}

}  // namespace

std::optional<Movement> Movement::none(c10::IntArrayRef sizes) {
  Movement result;
  for (const int64_t size : sizes) {
    if (size == 0) return {};
    result.from_.emplace_back();
    if (size == 1) continue;
    result.from_.back().push_back(result.atoms_.size());
    result.atoms_.push_back(size);
  }
  result.to_ = result.from_;
  return result;
}

std::vector<int64_t> Movement::sizes_of(const Dims& dims) const {
  Sizes result;
  for (const auto& dim : dims) {
    Sizes sizes;
    for (const size_t atom : dim) sizes.push_back(atoms_[atom]);
    result.push_back(product(sizes));
  }
  return result;
}

std::optional<Movement> Movement::permuted(c10::IntArrayRef dims) const {
  const auto rank = static_cast<int64_t>(to_.size());
  std::vector<int64_t> from(dims.begin(), dims.end());
  for (int64_t& dim : from) dim += dim < 0 ? rank : 0;
  std::vector<int64_t> all(to_.size());
  std::iota(all.begin(), all.end(), 0);
  if (!std::ranges::is_permutation(from, all)) return {};
  Movement result = *this;
  for (size_t i = 0; i < from.size(); ++i) result.to_[i] = to_[from[i]];
  return result.normal();
}

void Movement::split(size_t atom, int64_t first, int64_t second) {
  atoms_[atom] = first;
  for (Dims* const dims : {&from_, &to_}) {
    for (auto& dim : *dims) {
      if (const auto found = std::ranges::find(dim, atom); found != dim.end()) dim.insert(found + 1, atoms_.size());
    }
  }
  atoms_.push_back(second);
}

std::optional<Movement> Movement::reshaped(c10::IntArrayRef sizes) const {
  if (std::ranges::find(sizes, 0) != sizes.end() || unknown_count(sizes) > 1 || unknown_count(atoms_) > 1) return {};
  if (unknown_count(sizes) != unknown_count(atoms_)) return {};
  const int64_t known = known_product(atoms_), wanted = known_product(sizes);
  // The unknown size must be a whole multiple of the unknown atom: it is `times` as large.
  if (known % wanted != 0 || (unknown_count(sizes) == 0 && known != wanted)) return {};
  const int64_t times = known / wanted;

  Movement result = *this;
  result.to_.assign(1, flat(to_));  // the atoms that are left; `split` keeps them up to date
  for (const int64_t size : sizes) {
    std::vector<size_t> taken;
    int64_t left = is_known(size) ? size : times;
    bool needs_unknown = !is_known(size);
    while (left > 1 || needs_unknown) {
      if (result.to_[0].empty()) return {};
      const size_t next = result.to_[0].front();
      const int64_t given = result.atoms_[next];
      if (!is_known(given)) {
        if (!needs_unknown) return {};
        needs_unknown = false;
      } else if (left % given == 0) {
        left /= given;
      } else if (given % left == 0 && left > 1) {
        result.split(next, left, given / left);
        left = 1;
      } else {
        return {};
      }
      taken.push_back(next);
      result.to_[0].erase(result.to_[0].begin());
    }
    result.to_.push_back(std::move(taken));
  }
  if (!result.to_[0].empty()) return {};
  result.to_.erase(result.to_.begin());
  return result.normal();
}

// Gives the same movement with those atoms joined that are contiguous on both sides. Atoms are counted in the order of
// the tensor.
Movement Movement::normal() const {
  Movement result;
  result.from_.resize(from_.size());
  std::vector<std::optional<size_t>> renamed(atoms_.size());  // none where the atom is joined to the one before
  for (size_t i = 0; i < from_.size(); ++i) {
    std::optional<size_t> last;
    for (const size_t atom : from_[i]) {
      const bool known = last && is_known(atoms_[*last]) && is_known(atoms_[atom]);
      const bool joins =
          known && std::ranges::any_of(to_, [&](const auto& dim) { return contains(dim, {*last, atom}); });
      if (joins) {
        result.atoms_.back() *= atoms_[atom];
      } else {
        renamed[atom] = result.atoms_.size();
        result.from_[i].push_back(result.atoms_.size());
        result.atoms_.push_back(atoms_[atom]);
      }
      last = atom;
    }
  }
  for (const auto& dim : to_) {
    result.to_.emplace_back();
    for (const size_t atom : dim) {
      if (renamed[atom]) result.to_.back().push_back(*renamed[atom]);
    }
  }
  return result;
}

bool Movement::keeps_order() const { return flat(from_) == flat(to_); }

std::optional<size_t> Movement::origin(size_t dim) const {
  const auto found = std::ranges::find(from_, to_[dim]);
  if (to_[dim].empty() || found == from_.end()) return {};
  return static_cast<size_t>(found - from_.begin());
}

std::optional<Movement::Steps> Movement::steps() const {
  Steps result;
  const Sizes before = from_sizes(), after = to_sizes();
  const auto atoms_before = flat(from_), atoms_after = flat(to_);
  const auto places = [](const std::vector<size_t>& dims) { return Sizes(dims.begin(), dims.end()); };
  if (atoms_before == atoms_after) {
    if (from_ != to_) result.last = after;
  } else if (are_runs(from_, atoms_after)) {
    const bool alone = std::ranges::is_permutation(from_, to_);
    const auto order = sorted(from_, atoms_after);
    // If the dimensions are the same but for their order, those of size 1 go where they are wanted.
    std::vector<size_t> dims;
    size_t next = 0,
           next_one = order.size() - static_cast<size_t>(std::ranges::count_if(from_, &std::vector<size_t>::empty));
    for (size_t i = 0; alone && i < to_.size(); ++i) dims.push_back(order[to_[i].empty() ? next_one++ : next++]);
    result.permutation = places(alone ? dims : order);
    if (!alone) result.last = after;
  } else if (are_runs(to_, atoms_before)) {
    const auto order = sorted(to_, atoms_before);
    result.first.emplace();
    result.permutation.emplace(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      result.first->push_back(after[order[i]]);
      (*result.permutation)[order[i]] = static_cast<int64_t>(i);
    }
  } else {
    Dims pieces;  // one for each atom
    for (const size_t atom : atoms_before) pieces.push_back({atom});
    result.first = sizes_of(pieces);
    result.permutation = places(sorted(pieces, atoms_after));
    result.last = after;
  }
  const auto fits = [](const auto& sizes) { return !sizes || unknown_count(*sizes) <= 1; };
  return fits(result.first) && fits(result.last) ? std::optional(result) : std::nullopt;
}

}  // namespace onnxtorch
