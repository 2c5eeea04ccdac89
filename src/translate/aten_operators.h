// The operators of ATen that the ATen nodes of a model may call.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "translate/translator.h"

namespace onnxtorch {

// Those that check their arguments, in order: whatever a model gives them, they give a result or throw. A name, without
// "aten::", stands for all overloads, or has that of the one behind a dot. `python -m tools.aten` tries each.
std::span<const std::string_view> checked_operators();
bool is_checked_operator(std::string_view name, std::string_view overload);  // the name with "aten::"

// The translator of ATen that calls any operator; `aten` calls those only.
Values any_aten(Translator& t, const NodeView& n);

// What the option allow_aten says: whether all operators may be called. Throws InputError where it says nothing.
bool allows_any_aten(const std::string& allow_aten);

}  // namespace onnxtorch
