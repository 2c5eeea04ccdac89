// The reasons why known operators are not translated, and what to do.
#pragma once

#include <string_view>

namespace onnxtorch {

// Gives what is said of an operator without a translator; empty where there is nothing to say.
std::string_view why_refused(std::string_view domain, std::string_view op);

}  // namespace onnxtorch
