#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/arrange.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

using Result = std::tuple<at::Tensor, at::Tensor>;

template <size_t kBytes>
using Signed = std::conditional_t<kBytes == 2, int16_t, std::conditional_t<kBytes == 4, int32_t, int64_t>>;

template <typename T>
using Key = Signed<std::max<size_t>(sizeof(T), 2)>;

// Gives an integer that is ordered as the elements are. Zeros are equal, and NaN is the largest.
template <typename T>
Key<T> key(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<Key<T>>(x);
  } else {
    using Bits = Key<T>;
    constexpr Bits kMost = std::numeric_limits<Bits>::max();
    constexpr auto kInfinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
    const auto bits = std::bit_cast<Bits>(x);
    const auto magnitude = static_cast<Bits>(bits & kMost);
    const auto number = static_cast<Bits>(bits < 0 ? -magnitude : magnitude);
    return magnitude > kInfinity ? kMost : number;
  }
}

// An element's key and its index as one value, which is larger for the better element. Of equal keys the one with the
// lower index is the better one.
template <typename Key>
struct Ranked {
  using Type = std::pair<Key, int64_t>;
  static Type make(Key key, int64_t index) { return {key, -index}; }
  static Key key(Type ranked) { return ranked.first; }
  static int64_t index(Type ranked) { return -ranked.second; }
};

// The same for a short key: one integer holds the key and the index, so that one comparison decides.
template <typename Key>
  requires(sizeof(Key) <= 4)
struct Ranked<Key> {
  using Type = int64_t;
  static constexpr int64_t kMostIndex = std::numeric_limits<uint32_t>::max();
  static constexpr int kBits = 32;
  static Type make(Key key, int64_t index) { return int64_t{key} << kBits | (kMostIndex - index); }
  static Key key(Type ranked) { return static_cast<Key>(ranked >> kBits); }
  static int64_t index(Type ranked) { return kMostIndex - (ranked & kMostIndex); }
};

// Rows in parts; the best elements of each part are found first.
struct PartedRows {
  int64_t count, size, parts, k;
  bool largest;

  int64_t begin(int64_t part) const { return size * part / parts; }
};

template <typename T>
class Selection {
 public:
  using Order = Ranked<Key<T>>;
  using Entry = Order::Type;

  Selection(int64_t k, bool largest) : k_(k), flip_(largest ? 0 : -1) {}

  // Finds the best k of a row's elements from `begin` to `end`, of which there are at least k.
  std::span<const Entry> best(const T* row, int64_t begin, int64_t end) {
    entries_.clear();
    int64_t i = begin;
    for (; i < end && std::ssize(entries_) < k_; ++i) add(row[i], i);
    drop_worse();
    while (i < end) {
      constexpr int64_t kBlock = 64;
      const int64_t stop = std::min(end, i + kBlock);
      const Key<T> least = least_;
      int better = 0;
      for (int64_t j = i; j < stop; ++j) better += key_of(row[j]) > least;
      for (; i < stop && better > 0; ++i) {
        if (key_of(row[i]) > least_) add(row[i], i);
      }
      i = stop;
    }
    drop_worse();
    return entries_;
  }

 private:
  static constexpr int64_t kFew = 32;  // so many are kept in order; more are chosen of twice as many again and again

  Key<T> key_of(T x) const { return static_cast<Key<T>>(key(x) ^ flip_); }

  void add(T x, int64_t index) {
    const Entry entry = Order::make(key_of(x), index);
    if (k_ > kFew) {
      entries_.push_back(entry);
      if (std::ssize(entries_) == 2 * k_) drop_worse();
      return;
    }
    if (std::ssize(entries_) == k_) entries_.pop_back();
    entries_.insert(std::ranges::upper_bound(entries_, entry, std::greater()), entry);
    least_ = Order::key(entries_.back());
  }

  void drop_worse() {
    if (k_ <= kFew) return;
    std::ranges::nth_element(entries_, entries_.begin() + k_ - 1, std::greater());
    entries_.resize(k_);
    least_ = Order::key(entries_.back());
  }

  int64_t k_;
  Key<T> flip_, least_ = 0;
  std::vector<Entry> entries_;
};

template <typename T>
void top_k_rows(const T* x, T* values, int64_t* indices, const PartedRows& rows) {
  using Order = Selection<T>::Order;
  constexpr int64_t kCost = 8;  // of an element
  const int64_t k = rows.k, found_in_row = rows.parts * k;
  std::vector<typename Selection<T>::Entry> found(rows.count * found_in_row);
  parallel_for(rows.count * rows.parts, kCost * rows.size / rows.parts, [&](int64_t first, int64_t last) {
    Selection<T> selection(k, rows.largest);
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i / rows.parts, part = i % rows.parts;
      std::ranges::copy(selection.best(x + row * rows.size, rows.begin(part), rows.begin(part + 1)),
                        found.begin() + i * k);
    }
  });
  parallel_for(rows.count, kCost * found_in_row, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const auto best = std::span(found).subspan(row * found_in_row, found_in_row);
      std::ranges::partial_sort(best, best.begin() + k, std::greater());
      for (int64_t i = 0; i < k; ++i) {
        const int64_t index = Order::index(best[i]);
        values[row * k + i] = x[row * rows.size + index];
        indices[row * k + i] = index;
      }
    }
  });
}

Result top_k_by_sort(const at::Tensor& x, int64_t k, int64_t dim, bool largest) {
  const auto [values, indices] = x.sort(/*stable=*/true, dim, largest);
  return {values.narrow(dim, 0, k), indices.narrow(dim, 0, k)};
}

// Gives the number of parts of a row: a long one has so many that each thread has one, if each part is several times as
// long as what it gives.
int64_t parts_of(int64_t rows, int64_t size, int64_t k) {
  constexpr int64_t kShortest = 1 << 14;
  const int64_t wanted = at::get_num_threads() / rows, possible = size / std::max(kShortest, 4 * k);
  return std::max<int64_t>(std::min(wanted, possible), 1);
}

// Gives the rows with their parts; none where a sort is needed.
std::optional<PartedRows> rows_of(const at::Tensor& x, int64_t k, int64_t dim, bool largest) {
  const bool fits = x.is_cpu() && x.numel() > 0 && x.dim() > 0 && k > 0;
  if (!fits) return {};
  const int64_t size = x.size(at::maybe_wrap_dim(dim, x.dim())), count = x.numel() / size;
  if (k > size || size > std::numeric_limits<uint32_t>::max()) return {};
  return PartedRows{count, size, parts_of(count, size, k), k, largest};
}

Result top_k(const at::Tensor& x, int64_t k, int64_t dim, bool largest) {
  const auto rows = rows_of(x, k, dim, largest);
  if (!rows) return top_k_by_sort(x, k, dim, largest);
  const at::Tensor from = contiguous(x.movedim(dim, -1));
  std::vector<int64_t> sizes = from.sizes().vec();
  sizes.back() = k;
  const at::Tensor values = at::empty(sizes, x.options()), indices = at::empty(sizes, x.options().dtype(c10::kLong));
  AT_DISPATCH_ALL_TYPES_AND2(c10::kHalf, c10::kBFloat16, x.scalar_type(), "top_k", [&] {
    top_k_rows(from.const_data_ptr<scalar_t>(), values.mutable_data_ptr<scalar_t>(),
               indices.mutable_data_ptr<int64_t>(), *rows);
  });
  return {contiguous(values.movedim(-1, dim)), contiguous(indices.movedim(-1, dim))};
}

// Plans a call for contiguous rows alone.
std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  const int64_t dim = of.arguments[2].toInt();
  const auto rows = rows_of(x, of.arguments[1].toInt(), dim, of.arguments[3].toBool());
  const bool lies_well = rows && x.is_contiguous() && at::maybe_wrap_dim(dim, x.dim()) == x.dim() - 1 &&
                         std::ranges::all_of(of.results, [](const at::Tensor& y) { return y.is_contiguous(); });
  if (!lies_well) return {};
  return AT_DISPATCH_ALL_TYPES_AND2(c10::kHalf, c10::kBFloat16, x.scalar_type(), "top_k", [&] {
    return planned([rows = *rows](std::span<const TensorPlace> places) {
      top_k_rows(places[0].as<scalar_t>(), places[1].as<scalar_t>(), places[2].as<int64_t>(), rows);
    });
  });
}

}  // namespace

void register_top_k() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("top_k(Tensor x, int k, int dim, bool largest) -> (Tensor values, Tensor indices)", top_k);
  });
  register_planner("onnx_torch::top_k", plan);
}

}  // namespace onnxtorch
