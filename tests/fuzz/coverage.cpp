// Tells libFuzzer which code an input reaches: GCC calls the function below in every block of code that it compiles
// with -fsanitize-coverage=trace-pc, and libFuzzer reads counters of any kind that lie in a section of this name.
#include <cstddef>
#include <cstdint>

namespace {

__attribute__((section("__libfuzzer_extra_counters"))) uint8_t counters[1 << 17];

}  // namespace

// Calls are told apart by where they come from, relative to this very code, as programs lie elsewhere in each process.
extern "C" __attribute__((visibility("default"), no_sanitize_coverage, no_sanitize_address, no_sanitize_undefined)) void
__sanitizer_cov_trace_pc() {
  const auto from = reinterpret_cast<uintptr_t>(__builtin_return_address(0)) - reinterpret_cast<uintptr_t>(&counters);
  ++counters[(from ^ from >> 17) % sizeof(counters)];
}
