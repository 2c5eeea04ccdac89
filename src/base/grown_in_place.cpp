#include "base/grown_in_place.h"

#include <utility>

namespace onnxtorch {
namespace {

thread_local GrownInPlace* innermost = nullptr;

}  // namespace

GrownInPlace::GrownInPlace(std::vector<Grown> lent) : around_(std::exchange(innermost, this)), lent_(std::move(lent)) {}

GrownInPlace::~GrownInPlace() { innermost = around_; }

at::Tensor grown_in_place(const at::Tensor& past, at::IntArrayRef sizes) {
  if (!innermost) return {};
  for (const Grown& grown : innermost->lent_) {
    if (grown.past.is_same(past) && grown.present.sizes() == sizes) return grown.present;
  }
  return {};
}

}  // namespace onnxtorch
