// MurmurHash3 of com.microsoft: the 32-bit hash of the bytes of each element or text.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "kernels/standard/texts.h"

namespace onnxtorch {
namespace {

uint32_t scrambled(uint32_t block) { return std::rotl(block * 0xcc9e2d51u, 15) * 0x1b873593u; }

// Computes MurmurHash3_x86_32: four bytes a step, and what is left over at the end.
uint32_t murmur_hash3(std::string_view bytes, uint32_t seed) {
  const auto take_block = [&](size_t size) {
    uint32_t block = 0;
    std::memcpy(&block, bytes.data(), size);
    bytes.remove_prefix(size);
    return block;
  };
  const auto length = static_cast<uint32_t>(bytes.size());
  uint32_t hash = seed;
  while (bytes.size() >= sizeof(uint32_t)) {
    hash = std::rotl(hash ^ scrambled(take_block(sizeof(uint32_t))), 13) * 5 + 0xe6546b64u;
  }
  hash ^= scrambled(take_block(bytes.size()));  // which leaves it as it is where nothing is left over
  hash ^= length;
  hash = (hash ^ hash >> 16) * 0x85ebca6bu;
  hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
  return hash ^ hash >> 16;
}

at::Tensor hash_elements(const at::Tensor& x, int64_t seed) {
  const at::Tensor in = on_host(x);
  const size_t size = in.element_size();
  at::Tensor out = at::empty(in.sizes(), at::kLong);
  const auto* from = static_cast<const char*>(in.const_data_ptr());
  int64_t* to = out.mutable_data_ptr<int64_t>();
  parallel_for(in.numel(), /*cost=*/8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = murmur_hash3({from + i * size, size}, static_cast<uint32_t>(seed));
  });
  return out.to(x.device());
}

at::Tensor hash_strings(const c10::intrusive_ptr<StringPool>& pool, const at::Tensor& x, int64_t seed) {
  return map_texts<int64_t>(*pool, x, [&](const std::string& text) {
    return static_cast<int64_t>(murmur_hash3(text, static_cast<uint32_t>(seed)));
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  register_string_pool();
  constexpr auto kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;

  // MurmurHash3 of the bytes of each element, or of each string, as a number from 0 to 2^32 - 1.
  m.def("hash_elements(Tensor x, int seed) -> Tensor");
  m.impl("hash_elements", kAnyDevice, TORCH_FN(hash_elements));
  m.def("hash_strings(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor x, int seed) -> Tensor");
  m.impl("hash_strings", kAnyDevice, TORCH_FN(hash_strings));
}

}  // namespace onnxtorch
