// When a process ends, libtorch takes its operators out of the dispatcher and destroys them, one by one, in more time
// than it takes to load a small model and to run it. Here the dispatcher is told before that it is gone, and they stay.
#include <ATen/core/dispatch/Dispatcher.h>

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

// This library's objects are destroyed before those of libtorch, which it depends on. (A function that atexit registers is
// called after both under ThreadSanitizer, which does not tell atexit what library it is of.)
struct End {
  End() = default;
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() { keep_operators(); }
};
[[maybe_unused]] const End end;

}  // namespace
}  // namespace onnxtorch
