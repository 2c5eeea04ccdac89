// The operators of ATen that the ATen nodes of a model may call.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "translate/translator.h"

namespace onnxtorch {

// Gives the operators that check their arguments, in order: whatever a model gives them, they give a result or throw. A
// name, without "aten::", stands for all overloads, or has that of the one behind a dot. `python -m tools.aten` tries
// each.
std::span<const std::string_view> checked_operators();
bool is_checked_operator(std::string_view name, std::string_view overload);  // the name with "aten::"

// Translates an ATen node that may call any operator; `aten` lets it call the checked ones only.
Values any_aten(Translator& t, const NodeView& n);

// Tells whether the option allow_aten lets all operators be called. Throws InputError where it says nothing.
bool allows_any_aten(const std::string& allow_aten);

}  // namespace onnxtorch
