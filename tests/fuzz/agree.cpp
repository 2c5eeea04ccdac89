#include "agree.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <type_traits>
#include <variant>

namespace onnxtorch::fuzz {
namespace {

struct Agreement {
  bool (*tensors_agree)(const at::Tensor&, const at::Tensor&);

  bool operator()(const at::Tensor& a, const at::Tensor& b) const { return tensors_agree(a, b); }
  bool operator()(const Strings& a, const Strings& b) const { return a.values == b.values && a.sizes == b.sizes; }
  bool operator()(const Sequence& a, const Sequence& b) const { return std::ranges::equal(a.items, b.items, *this); }
  bool operator()(const Map& a, const Map& b) const { return (*this)(a.keys, b.keys) && (*this)(a.values, b.values); }
  bool operator()(std::monostate, std::monostate) const { return true; }
  bool operator()(const Data& a, const Data& b) const { return (*this)(a.value(), b.value()); }

  // Tells whether both are of the same kind, and agree as such.
  template <typename... Kinds>
  bool operator()(const std::variant<Kinds...>& a, const std::variant<Kinds...>& b) const {
    const auto same = [&](const auto& x) { return (*this)(x, std::get<std::decay_t<decltype(x)>>(b)); };
    return a.index() == b.index() && std::visit(same, a);
  }
};

}  // namespace

bool agree(const Data& a, const Data& b, bool (*tensors_agree)(const at::Tensor&, const at::Tensor&)) {
  return Agreement{tensors_agree}(a, b);
}

bool alike(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (a.is_complex()) return alike(at::view_as_real(a.resolve_conj()), at::view_as_real(b.resolve_conj()));
  if (!a.is_floating_point()) return at::equal(a.flatten(), b.flatten());
  const at::Tensor x = a.to(at::kDouble).flatten(),
                   y = b.to(at::kDouble).flatten();  // ATen compares up to 64 dimensions
  const at::Tensor finite = at::isfinite(x).logical_and(at::isfinite(y));
  if (!at::equal(at::isnan(x), at::isnan(y))) return false;
  const at::Tensor size = at::where(finite, x.abs(), 0);
  const double allowed = a.numel() > 0 ? 1e-2 * size.max().item<double>() + 1e-4 : 0;
  return at::where(finite, (x - y).abs().le(allowed), true).all().item<bool>();
}

}  // namespace onnxtorch::fuzz
