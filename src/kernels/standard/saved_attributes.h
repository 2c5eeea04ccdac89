// Classes that are made of a node's attributes, and saved as these: as their strings, and as their integers and bools, in
// the order of `Attributes::fields`.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace onnxtorch {

using SavedAttributes = std::tuple<std::vector<std::string>, std::vector<int64_t>>;

template <class Attributes>
SavedAttributes save_attributes(const Attributes& attributes) {
  SavedAttributes saved;
  auto& [texts, integers] = saved;
  const auto save = [&](const auto& field) {
    if constexpr (std::same_as<decltype(field), const std::string&>) {
      texts.push_back(field);
    } else {
      integers.push_back(field);
    }
  };
  std::apply([&](const auto&... field) { (save(field), ...); }, Attributes::fields(attributes));
  return saved;
}

// Gives nothing where there are not as many texts and integers as fields: a file's bytes may be anyone's.
template <class Attributes>
std::optional<Attributes> load_attributes(const SavedAttributes& saved) {
  Attributes attributes{};
  const auto expected = save_attributes(attributes);
  const auto& [texts, integers] = saved;
  if (texts.size() != std::get<0>(expected).size() || integers.size() != std::get<1>(expected).size()) return {};
  auto text = texts.begin();
  auto integer = integers.begin();
  const auto load = [&](auto& field) {
    if constexpr (std::same_as<decltype(field), std::string&>) {
      field = *text++;
    } else {
      field = static_cast<std::remove_cvref_t<decltype(field)>>(*integer++);
    }
  };
  std::apply([&](auto&... field) { (load(field), ...); }, Attributes::fields(attributes));
  return attributes;
}

// Registers a class of that name, the objects of which are saved as `attributes()`, and made of these.
template <class T>
void register_saved_class(torch::Library& m, const std::string& name) {
  const auto get_state = [](const c10::intrusive_ptr<T>& self) { return save_attributes(self->attributes()); };
  const auto from_state = [](const SavedAttributes& saved) {
    auto attributes = load_attributes<typename T::Attributes>(saved);
    TORCH_CHECK(attributes, "not the state of ", c10::demangle_type<T>());
    return c10::make_intrusive<T>(*std::move(attributes));
  };
  m.class_<T>(name).def_static("make", from_state).def_pickle(get_state, from_state);
}

}  // namespace onnxtorch
