#include "import/tensor_proto.h"

#include <ATen/ATen.h>
#include <onnx/onnx-ml.pb.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/parallel.h"
#include "base/prepare_guard.h"
#include "base/size.h"
#include "base/view_of.h"
#include "import/storage.h"
#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

using enum ElementType;

constexpr int64_t kMostElements = int64_t{1} << 56;  // the bits of as many elements can still be counted

// Counts the elements of a tensor, or of one that is sparse and has its values in the tensor. An empty tensor has
// strides as well, which are products of its other dimensions, so these must not be too large either.
int64_t element_count(const onnx::TensorProto& proto, at::IntArrayRef dims) {
  Size count = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) fail(proto, "it has a negative dimension");
    count = count * std::max<int64_t>(dim, 1);
  }
  if (!count.is_at_most(kMostElements)) fail(proto, "it has too many elements");
  return std::ranges::find(dims, 0) != dims.end() ? 0 : count.value();
}

int64_t byte_count(ElementType type, int64_t elements) { return (elements * info(type).bits + 7) / 8; }

bool is_aligned(const void* data, size_t element_size) { return reinterpret_cast<uintptr_t>(data) % element_size == 0; }

// Gives a view of bytes that have the native layout, else a tensor of its own memory.
at::Tensor native_tensor(ElementType type, at::IntArrayRef dims, const Bytes& bytes) {
  const c10::ScalarType dtype = native_dtype(type);
  const int bits = info(type).bits;
  if (bits >= 8 && !bytes.view.empty() && is_aligned(bytes.view.data(), c10::elementSize(dtype))) {
    return view_of(bytes.view.data(), dims, dtype, bytes.owner);
  }
  at::Tensor native = at::empty(dims, dtype);
  if (bits < 8) {
    unpack_bits(bytes.view, bits, {static_cast<uint8_t*>(native.data_ptr()), static_cast<size_t>(native.numel())});
  } else if (native.numel() > 0) {
    std::memcpy(native.data_ptr(), bytes.view.data(), bytes.view.size());
  }
  return native;
}

template <typename To, typename Field>
std::string packed_as(const Field& field) {
  std::string bytes(field.size() * sizeof(To), '\0');
  auto* out = reinterpret_cast<To*>(bytes.data());
  for (int i = 0; i < field.size(); ++i) out[i] = static_cast<To>(field[i]);
  return bytes;
}

// Gives the typed field that holds a type's elements, as the bytes that raw_data would have.
std::string field_bytes(const onnx::TensorProto& proto, ElementType type) {
  switch (type) {
    case Float:
    case Complex64:
      return packed_as<float>(proto.float_data());
    case Double:
    case Complex128:
      return packed_as<double>(proto.double_data());
    case Int64:
      return packed_as<int64_t>(proto.int64_data());
    case Uint32:
      return packed_as<uint32_t>(proto.uint64_data());
    case Uint64:
      return packed_as<uint64_t>(proto.uint64_data());
    case Int32:
      return packed_as<int32_t>(proto.int32_data());
    default:
      return info(type).bits == 16 ? packed_as<uint16_t>(proto.int32_data()) : packed_as<uint8_t>(proto.int32_data());
  }
}

bool is_external(const onnx::TensorProto& proto) { return proto.data_location() == onnx::TensorProto::EXTERNAL; }

// Gives the index of each value of a sparse tensor among the elements of the dense one.
at::Tensor positions(const onnx::SparseTensorProto& proto, const at::Tensor& indices) {
  const auto check = [&](bool good, const char* what) {
    if (!good) fail(proto.values(), std::string("the indices of its sparse form ") + what);
  };
  check(indices.scalar_type() == c10::kLong, "must be int64");
  check(indices.dim() == 1 || indices.dim() == 2, "must be of rank 1 or 2");
  check(indices.size(0) == proto.values().dims(0), "must be as many as its values");
  check(indices.dim() == 1 || indices.size(1) == proto.dims_size(), "must have one column for each dimension");
  const std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  const at::Tensor limits = indices.dim() == 1 ? at::tensor({c10::multiply_integers(dims)}) : at::tensor(dims);
  check(indices.ge(0).logical_and(indices.lt(limits)).all().item<bool>(), "must lie inside its shape");
  at::Tensor places = indices;
  if (indices.dim() == 2) {
    places = at::zeros({indices.size(0)}, c10::kLong);
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      places = places.mul(dims[axis]).add(indices.select(1, static_cast<int64_t>(axis)));
    }
  }
  check(places.diff().gt(0).all().item<bool>(), "must be in ascending order");
  return places;
}

}  // namespace

ElementType element_type(const onnx::TensorProto& proto) { return static_cast<ElementType>(proto.data_type()); }

int64_t data_size(const onnx::TensorProto& proto) {
  if (!is_element_type(proto.data_type())) fail(proto, "unknown element type " + std::to_string(proto.data_type()));
  const std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  return byte_count(element_type(proto), element_count(proto, dims));
}

[[noreturn]] void fail(const onnx::TensorProto& proto, const std::string& what) {
  throw InvalidModelError("tensor \"" + proto.name() + "\": " + what);
}

at::Tensor TensorReader::read(const onnx::TensorProto& proto, const std::shared_ptr<const void>& owner) const {
  const ElementType type = element_type(proto);
  if (!is_element_type(proto.data_type())) fail(proto, "unknown element type " + std::to_string(proto.data_type()));
  const std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  const int64_t elements = element_count(proto, dims);
  if (type == String) {
    if (is_external(proto)) fail(proto, "strings cannot lie in an external file");
    if (proto.string_data_size() != elements) fail(proto, "its number of strings does not fit its shape");
    at::Tensor ids = at::empty(dims, c10::kLong);
    for (int i = 0; i < proto.string_data_size(); ++i) ids.data_ptr<int64_t>()[i] = intern(proto.string_data(i));
    return ids;
  }
  const bool elsewhere = is_external(proto) || external.in_own_file(proto);
  const bool in_field = proto.raw_data().empty() && !elsewhere;
  if (in_field && info(type).bits == 6) {  // an entry holds one code here, unlike in raw_data
    const std::string codes = packed_as<uint8_t>(proto.int32_data());
    if (static_cast<int64_t>(codes.size()) != elements) fail(proto, "its number of elements does not fit its shape");
    return to_storage(type, at::from_blob(const_cast<char*>(codes.data()), dims, c10::kByte));
  }
  Bytes bytes{proto.raw_data(), owner};
  if (elsewhere) bytes = external.read(proto, byte_count(type, elements), access);
  if (in_field) {
    const auto packed = std::make_shared<const std::string>(field_bytes(proto, type));
    bytes = {*packed, packed};
  }
  if (static_cast<int64_t>(bytes.view.size()) != byte_count(type, elements)) {
    fail(proto, "expected " + std::to_string(byte_count(type, elements)) + " bytes of data, found " +
                    std::to_string(bytes.view.size()));
  }
  return to_storage(type, native_tensor(type, dims, bytes));
}

// Reads several tensors. Those that lie in files are read from there, by several threads at once where they are large.
std::vector<at::Tensor> TensorReader::read(std::span<const onnx::TensorProto* const> protos,
                                           const std::shared_ptr<const void>& owner) const {
  constexpr double kLeastBytes = 1 << 21;  // for one thread to read
  std::vector<at::Tensor> tensors(protos.size());
  std::vector<size_t> in_files;
  double bytes = 0;
  for (size_t i = 0; i < protos.size(); ++i) {
    if (element_type(*protos[i]) == String) continue;  // the pool of strings is one thread's
    const auto size = external.to_read(*protos[i], data_size(*protos[i]), access);
    if (size) in_files.push_back(i);
    bytes += static_cast<double>(size.value_or(0));
  }
  const auto threads = static_cast<int64_t>(std::clamp<double>(bytes / kLeastBytes, 1, at::get_num_threads()));
  const auto read_one = [&](int64_t i, int64_t /*thread*/) {
    tensors[in_files[i]] = read(*protos[in_files[i]], owner);  // a single tensor is read by several threads
  };
  share_out(std::ssize(in_files), in_files.size() > 1 ? threads : 1, read_one);
  for (size_t i = 0; i < protos.size(); ++i) {
    if (!tensors[i].defined()) tensors[i] = read(*protos[i], owner);
  }
  return tensors;
}

at::Tensor TensorReader::read(const onnx::SparseTensorProto& proto, const std::shared_ptr<const void>& owner) const {
  const std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  const at::Tensor values = read(proto.values(), owner);
  if (values.dim() != 1) fail(proto.values(), "the values of a sparse tensor must be of rank 1");
  count_constant_bytes(static_cast<double>(element_count(proto.values(), dims)) *
                       static_cast<double>(values.element_size()));
  // Absent elements are zero, or the empty text.
  const int64_t absent = element_type(proto.values()) == String ? intern("") : 0;
  at::Tensor dense = at::full(dims, absent, values.options());
  if (values.numel() == 0) return dense;
  if (!proto.has_indices()) fail(proto.values(), "its sparse form has no indices");
  // ATen cannot index every type of one byte; as bytes it can.
  const c10::ScalarType moved = values.element_size() == 1 ? c10::kByte : values.scalar_type();
  dense.view(moved).view({-1}).index_put_({positions(proto, read(proto.indices(), owner))}, values.view(moved));
  return dense;
}

}  // namespace onnxtorch
