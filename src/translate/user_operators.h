// Operators of domains outside the standard, that the user registers while the program runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "translate/translator.h"

namespace onnxtorch {

// Registers a translator of an operator. It holds from opset version `since_version` of the domain up to the next one
// registered. Throws InputError for a domain of the standard; registering the same version again replaces it, for
// models that are prepared from then on.
void register_operator(const std::string& domain, const std::string& op, int64_t since_version,
                       TranslateFunction translate);

// Finds the translator of an operator; nothing where none of that name is registered for the version.
std::optional<TranslateFunction> find_user_operator(const std::string& domain, const std::string& op,
                                                    int64_t opset_version);

}  // namespace onnxtorch
