#include "onnx_torch/data.h"

#include <algorithm>

#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

constexpr const char* kNames[] = {"absent", "a tensor", "a tensor of strings", "a sequence", "a map"};

}  // namespace

template <typename T>
const T& Data::get() const {
  if (const T* held = std::get_if<T>(&value_)) return *held;
  throw Error(std::string("the value is ") + kNames[value_.index()] + ", not " + kNames[Value(T{}).index()]);
}

at::Tensor Data::tensor() const { return get<at::Tensor>(); }
const Strings& Data::strings() const { return get<Strings>(); }
const std::vector<Data>& Data::sequence() const { return get<Sequence>().items; }
const Map& Data::map() const { return get<Map>(); }

const Data& Outputs::operator[](size_t i) const {
  if (i >= values_.size())
    throw InputError("there is no output " + std::to_string(i) + "; there are " + std::to_string(values_.size()));
  return values_[i];
}

const Data& Outputs::operator[](std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end()) throw InputError("there is no output \"" + std::string(name) + "\"");
  return values_[static_cast<size_t>(found - names_.begin())];
}

}  // namespace onnxtorch
