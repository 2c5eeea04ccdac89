// ATen's element-wise operators and copies for few elements: a call by memory takes a tenth of the time that ATen's
// operator takes until it comes to the first element. They give the same bits.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/element_bits.h"
#include "base/planned_call.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

constexpr int64_t kMostElements = 1 << 12;
constexpr size_t kMostOperands = 4;  // the result among them

// A loop over the elements of a result, the innermost dimension first, with the strides of each operand in bytes.
// Dimensions along which all operands go on evenly are merged into one.
class Loop {
 public:
  // All tensors have as many dimensions as the result, and its sizes, or 1.
  Loop(const at::Tensor& result, at::ArrayRef<at::Tensor> operands) {
    for (int64_t d = result.dim() - 1; d >= 0; --d) {
      if (result.size(d) == 1) continue;
      Dim dim{.size = result.size(d)};
      for (size_t i = 0; i < operands.size(); ++i) dim.strides[i] = stride(operands[i], d);
      dim.strides[operands.size()] = stride(result, d);
      if (!dims_.empty() && goes_on(dims_.back(), dim)) {
        dims_.back().size *= dim.size;
      } else {
        dims_.push_back(dim);
      }
    }
    if (dims_.empty()) dims_.push_back({.size = 1});
  }

  // Calls f(data, count, strides) for runs along the innermost dimension.
  template <size_t N, typename F>
  void run(std::array<char*, N> data, const F& f) const {
    visit(data, dims_.size() - 1, f);
  }

 private:
  struct Dim {
    int64_t size = 1;
    std::array<int64_t, kMostOperands> strides = {};
  };

  static int64_t stride(const at::Tensor& t, int64_t d) { return t.size(d) == 1 ? 0 : t.stride(d) * t.element_size(); }

  static bool goes_on(const Dim& inner, const Dim& outer) {
    for (size_t i = 0; i < kMostOperands; ++i) {
      if (outer.strides[i] != inner.strides[i] * inner.size) return false;
    }
    return true;
  }

  template <size_t N, typename F>
  void visit(std::array<char*, N> data, size_t dim, const F& f) const {
    const Dim& d = dims_[dim];
    if (dim == 0) return f(data, d.size, d.strides);
    for (int64_t i = 0; i < d.size; ++i) {
      visit(data, dim - 1, f);
      for (size_t k = 0; k < N; ++k) data[k] += d.strides[k];
    }
  }

  c10::SmallVector<Dim, 4> dims_;
};

using Strides = std::array<int64_t, kMostOperands>;

// Reads an element. A bool may be of any byte, as a model's is.
template <typename T>
T element(const char* at) {
  if constexpr (std::is_same_v<T, bool>) {
    return *at != 0;
  } else {
    return *reinterpret_cast<const T*>(at);
  }
}

// Gives the result of f for each element of the operands, of types T...
template <typename R, typename... T, typename F, size_t... I>
void compute(const Loop& loop, const std::array<char*, sizeof...(T) + 1>& data, const F& f,
             std::index_sequence<I...> /*operands*/) {
  constexpr size_t kOperands = sizeof...(T);
  loop.run(data, [&](const auto& first, int64_t count, const Strides& strides) {
    const bool is_dense = ((strides[I] == int64_t{sizeof(T)}) && ...) && strides[kOperands] == int64_t{sizeof(R)};
    if (is_dense) {
      auto* const to = reinterpret_cast<R*>(first[kOperands]);
      for (int64_t i = 0; i < count; ++i) to[i] = f(element<T>(first[I] + i * int64_t{sizeof(T)})...);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      *reinterpret_cast<R*>(first[kOperands] + i * strides[kOperands]) = f(element<T>(first[I] + i * strides[I])...);
    }
  });
}

// Expands the tensors to the result's sizes. Returns none where one does not fit these, or is no plain tensor of the
// CPU.
std::optional<std::vector<at::Tensor>> like(const at::Tensor& result, at::ArrayRef<at::Tensor> operands) {
  std::vector<at::Tensor> found;
  for (const at::Tensor& operand : operands) {
    if (!operand.defined() || !operand.is_cpu() || operand.layout() != c10::kStrided || operand.is_conj() ||
        operand.is_neg() || operand.dim() > result.dim() || !at::is_expandable_to(operand.sizes(), result.sizes())) {
      return {};
    }
    found.push_back(operand.expand(result.sizes()));
  }
  return found;
}

// Makes a call that computes f of the elements of these tensors. Their places are the first ones, in this order.
template <typename R, typename... T, typename F>
std::unique_ptr<PlannedCall> planned_elements(const at::Tensor& result,
                                              const std::array<at::Tensor, sizeof...(T)>& operands, const F& f) {
  const auto expanded = like(result, operands);
  if (!expanded) return {};
  return planned([loop = Loop(result, *expanded), f](std::span<const TensorPlace> places) {
    std::array<char*, sizeof...(T) + 1> data;
    for (size_t i = 0; i < sizeof...(T); ++i) data[i] = places[i].data;
    data.back() = places.back().data;
    compute<R, T...>(loop, data, f, std::index_sequence_for<T...>());
  });
}

bool is_small(const PlannedOperands& of) {
  const at::Tensor& result = of.results[0];
  return of.results.size() == 1 && result.numel() > 0 && result.numel() <= kMostElements;
}

// --- Operators of two operands ---

// Plans an operator of two operands, the second of which may be a number.
template <typename R, typename T, typename F>
std::unique_ptr<PlannedCall> binary(const PlannedOperands& of, const F& f) {
  const at::Tensor a = of.tensor(0), b = of.tensor(1);
  if (b.defined()) return planned_elements<R, T, T>(of.results[0], {a, b}, f);
  const auto number = of.arguments[1].toScalar().to<T>();
  return planned_elements<R, T>(of.results[0], {a}, [f, number](T x) { return f(x, number); });
}

// Returns the type in which an operator is computed without a cast: all tensors have it, and a number fits it.
std::optional<c10::ScalarType> common_type(const PlannedOperands& of) {
  const at::Tensor a = of.tensor(0), b = of.tensor(1);
  if (!a.defined()) return {};
  if (b.defined()) return a.scalar_type() == b.scalar_type() ? std::optional(a.scalar_type()) : std::nullopt;
  if (!of.arguments[1].isScalar()) return {};
  const c10::Scalar number = of.arguments[1].toScalar();
  const bool fits = a.scalar_type() == c10::kFloat
                        ? !number.isComplex()
                        : a.scalar_type() == c10::kLong && number.isIntegral(/*includeBool=*/false);
  return fits ? std::optional(a.scalar_type()) : std::nullopt;
}

bool is_without_factor(const PlannedOperands& of) {
  return of.arguments.size() < 3 || (of.arguments[2].isScalar() && of.arguments[2].toScalar().equal(int64_t{1}));
}

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
};

// Plans a sum, difference or product. Those of integers wrap around.
template <typename F>
std::unique_ptr<PlannedCall> plan_arithmetic(const PlannedOperands& of) {
  if (!is_small(of) || !is_without_factor(of)) return {};
  const auto type = common_type(of);
  if (!type || of.results[0].scalar_type() != *type) return {};
  if (*type == c10::kFloat) return binary<float, float>(of, F());
  if (*type != c10::kLong) return {};
  return binary<int64_t, int64_t>(of, [](int64_t a, int64_t b) {
    return static_cast<int64_t>(F()(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  });
}

std::unique_ptr<PlannedCall> plan_div(const PlannedOperands& of) {
  const bool fits =
      is_small(of) && of.arguments.size() == 2 && of.tensor(1).defined() && common_type(of) == c10::kFloat;
  return fits ? binary<float, float>(of, [](float a, float b) { return a / b; }) : nullptr;
}

template <template <typename> typename Compare>
std::unique_ptr<PlannedCall> plan_comparison(const PlannedOperands& of) {
  const auto type = is_small(of) ? common_type(of) : std::nullopt;
  if (!type || of.results[0].scalar_type() != c10::kBool) return {};
  if (*type == c10::kFloat) return binary<bool, float>(of, Compare<float>());
  if (*type == c10::kLong) return binary<bool, int64_t>(of, Compare<int64_t>());
  return {};
}

template <typename F>
std::unique_ptr<PlannedCall> plan_logic(const PlannedOperands& of) {
  const bool fits = is_small(of) && of.tensor(1).defined() && common_type(of) == c10::kBool &&
                    of.results[0].scalar_type() == c10::kBool;
  return fits ? binary<bool, bool>(of, F()) : nullptr;
}

// --- Others ---

std::unique_ptr<PlannedCall> plan_neg(const PlannedOperands& of) {
  if (!is_small(of) || of.tensor(0).scalar_type() != c10::kFloat) return {};
  return planned_elements<float, float>(of.results[0], {of.tensor(0)}, [](float x) { return -x; });
}

std::unique_ptr<PlannedCall> plan_logical_not(const PlannedOperands& of) {
  if (!is_small(of) || of.tensor(0).scalar_type() != c10::kBool) return {};
  return planned_elements<bool, bool>(of.results[0], {of.tensor(0)}, [](bool x) { return !x; });
}

template <typename T>
std::unique_ptr<PlannedCall> where(const PlannedOperands& of) {
  return planned_elements<T, bool, T, T>(of.results[0], {of.tensor(0), of.tensor(1), of.tensor(2)},
                                         [](bool condition, T a, T b) { return condition ? a : b; });
}

std::unique_ptr<PlannedCall> plan_where(const PlannedOperands& of) {
  if (!is_small(of) || of.arguments.size() != 3 || of.tensor(0).scalar_type() != c10::kBool) return {};
  const at::Tensor a = of.tensor(1), b = of.tensor(2);
  const c10::ScalarType type = of.results[0].scalar_type();
  if (!a.defined() || !b.defined() || a.scalar_type() != type || b.scalar_type() != type) return {};
  if (type == c10::kFloat) return where<float>(of);
  if (type == c10::kLong) return where<int64_t>(of);
  if (type == c10::kBool) return where<bool>(of);
  return {};
}

template <typename R, typename T>
std::unique_ptr<PlannedCall> cast(const PlannedOperands& of) {
  return planned_elements<R, T>(of.results[0], {of.tensor(0)}, [](T x) { return static_cast<R>(x); });
}

// Makes a call that copies elements as they are, whatever their type, if there is an integer of as many bytes.
std::unique_ptr<PlannedCall> copied(const at::Tensor& from, const at::Tensor& to) {
  const std::array<at::Tensor, 1> operand{from};
  const auto keep = [](auto x) { return x; };
  return with_bits_of(from.element_size(), [&]<typename T>(T) { return planned_elements<T, T>(to, operand, keep); });
}

// Plans operators whose first operand is copied, broadcast or cast.
std::unique_ptr<PlannedCall> plan_copy(const PlannedOperands& of) {
  const at::Tensor from = of.tensor(0);
  if (!is_small(of) || !from.defined()) return {};
  const at::Tensor& to = of.results[0];
  const c10::ScalarType a = from.scalar_type(), b = to.scalar_type();
  if (a == b) return copied(from, to);
  if (a == c10::kLong && b == c10::kBool) return cast<bool, int64_t>(of);
  if (a == c10::kLong && b == c10::kFloat) return cast<float, int64_t>(of);
  if (a == c10::kLong && b == c10::kInt) return cast<int32_t, int64_t>(of);
  if (a == c10::kInt && b == c10::kLong) return cast<int64_t, int32_t>(of);
  if (a == c10::kInt && b == c10::kFloat) return cast<float, int32_t>(of);
  if (a == c10::kBool && b == c10::kFloat) return cast<float, bool>(of);
  if (a == c10::kBool && b == c10::kLong) return cast<int64_t, bool>(of);
  if (a == c10::kFloat && b == c10::kBool) return cast<bool, float>(of);
  return {};
}

// Plans operators that copy their first operand in the same order to a result of other sizes.
std::unique_ptr<PlannedCall> plan_reshape(const PlannedOperands& of) {
  const at::Tensor from = of.tensor(0);
  const at::Tensor& to = of.results[0];
  if (!is_small(of) || !from.defined() || from.scalar_type() != to.scalar_type() || !to.is_contiguous()) return {};
  return copied(from, to.view(from.sizes()));
}

// Plans a call that copies each tensor to where it begins in the result.
std::unique_ptr<PlannedCall> plan_cat(const PlannedOperands& of) {
  const at::Tensor& result = of.results[0];
  if (!is_small(of) || result.dim() == 0) return {};
  const std::vector<at::Tensor> tensors = of.arguments[0].toTensorVector();
  const int64_t dim = at::maybe_wrap_dim(of.arguments[1].toInt(), result.dim());
  std::vector<std::shared_ptr<PlannedCall>> copies;
  std::vector<int64_t> offsets;
  int64_t start = 0;
  for (const at::Tensor& t : tensors) {
    if (t.dim() != result.dim() || t.scalar_type() != result.scalar_type()) return {};
    copies.push_back(t.numel() > 0 ? copied(t, result.narrow(dim, start, t.size(dim))) : planned([](auto) {}));
    if (!copies.back()) return {};
    offsets.push_back(start * result.stride(dim) * result.element_size());
    start += t.size(dim);
  }
  return planned([copies, offsets](std::span<const TensorPlace> places) {
    for (size_t i = 0; i < copies.size(); ++i) {
      const std::array<TensorPlace, 2> from_to{places[i], {places.back().data + offsets[i], places.back().bound}};
      copies[i]->run(from_to);
    }
  });
}

}  // namespace

void register_few_elements() {
  [[maybe_unused]] static const bool once = [] {
    register_planner("aten::add", plan_arithmetic<Add>);
    register_planner("aten::sub", plan_arithmetic<Sub>);
    register_planner("aten::mul", plan_arithmetic<Mul>);
    register_planner("aten::div", plan_div);
    register_planner("aten::lt", plan_comparison<std::less>);
    register_planner("aten::le", plan_comparison<std::less_equal>);
    register_planner("aten::gt", plan_comparison<std::greater>);
    register_planner("aten::ge", plan_comparison<std::greater_equal>);
    register_planner("aten::eq", plan_comparison<std::equal_to>);
    register_planner("aten::ne", plan_comparison<std::not_equal_to>);
    register_planner("aten::logical_and", plan_logic<std::logical_and<bool>>);
    register_planner("aten::logical_or", plan_logic<std::logical_or<bool>>);
    register_planner("aten::logical_xor", plan_logic<std::not_equal_to<bool>>);
    register_planner("aten::neg", plan_neg);
    register_planner("aten::logical_not", plan_logical_not);
    register_planner("aten::where", plan_where);
    for (const char* name : {"aten::to", "aten::clone", "aten::contiguous", "aten::expand_copy"}) {
      register_planner(name, plan_copy);
    }
    for (const char* name : {"aten::reshape", "onnx_torch::reshape", "aten::flatten"})
      register_planner(name, plan_reshape);
    for (const char* name : {"aten::cat", "onnx_torch::cat"}) register_planner(name, plan_cat);
    return true;
  }();
}

}  // namespace onnxtorch
