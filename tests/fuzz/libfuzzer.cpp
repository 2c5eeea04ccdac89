// What libFuzzer asks for: what to do with an input, and how to change one. FUZZ_TARGET is the name of a target.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "mutate.h"
#include "on_disk.h"
#include "onnx_torch/model.h"
#include "targets.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace onnxtorch::fuzz {
namespace {

constexpr std::string_view kTarget = FUZZ_TARGET;
constexpr bool kTakesModels = kTarget != "image" && kTarget != "text";

std::string text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

// What does not fit is left out: the input stays.
size_t put(const std::string& bytes, uint8_t* data, size_t size, size_t most) {
  if (bytes.size() > most) return size;
  std::ranges::copy(bytes, data);
  return bytes.size();
}

}  // namespace
}  // namespace onnxtorch::fuzz

using namespace onnxtorch::fuzz;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  onnxtorch::make_ready();
  ignore_warnings();
  make_folders_in_memory();
  return 0;
}

// Another exception than the package's, which a target lets through, ends the process.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Target& target = *targets().at(kTarget);
  target(text(data, size));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  Random random(seed);
  if (!kTakesModels || random.one_in(16)) return LLVMFuzzerMutate(data, size, most);
  const std::string bytes = text(data, size);
  return put(mutate_model(bytes, bytes, random), data, size, most);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data, size_t size, const uint8_t* other, size_t other_size,
                                            uint8_t* out, size_t most, unsigned seed) {
  Random random(seed);
  std::string bytes = text(data, size);
  if (kTakesModels) {
    bytes = mutate_model(bytes, text(other, other_size), random);
  } else {
    mutate_bytes(bytes, text(other, other_size), random);
  }
  return put(bytes, out, 0, most);
}
