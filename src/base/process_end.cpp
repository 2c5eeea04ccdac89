// When a process ends, libtorch takes its operators out of the dispatcher and destroys them, one by one, in more time
// than it takes to load a small model and to run it. Here the dispatcher is told before that it is gone, and they stay.
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdlib>
#include <mutex>
#include <type_traits>
#include <utility>

namespace onnxtorch {
namespace {

struct Guard {};
struct Operators {};
auto& member_of(Guard, c10::Dispatcher& dispatcher);
auto& member_of(Operators, c10::Dispatcher& dispatcher);

// An explicit instantiation may name a member that is private.
template <typename Tag, auto member>
struct Access {
  friend auto& member_of(Tag, c10::Dispatcher& dispatcher) { return dispatcher.*member; }
};
template struct Access<Guard, &c10::Dispatcher::guard_>;
template struct Access<Operators, &c10::Dispatcher::operators_>;

void keep_operators() {
  auto& dispatcher = c10::Dispatcher::realSingleton();
  auto& guard = *member_of(Guard(), dispatcher);
  auto& operators = member_of(Operators(), dispatcher);
  const std::lock_guard lock(guard.mutex);
  guard.alive = false;
  using List = std::remove_reference_t<decltype(operators)>;
  static const List* const kept = new List(std::move(operators));
  static_cast<void>(kept);
}

// The function that is registered last is the first to be called at the end.
[[maybe_unused]] const int registered = std::atexit(keep_operators);

}  // namespace
}  // namespace onnxtorch
