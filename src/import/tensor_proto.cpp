#include "import/tensor_proto.h"

#include <ATen/ATen.h>
#include <onnx/onnx-ml.pb.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <string>

#include "import/storage.h"
#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

using enum ElementType;

[[noreturn]] void fail(const onnx::TensorProto& proto, const std::string& what) {
  throw InvalidModelError("tensor \"" + proto.name() + "\": " + what);
}

int64_t count_of(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

// A tensor of its own memory in the native layout.
at::Tensor from_bytes(const onnx::TensorProto& proto, ElementType type, const std::vector<int64_t>& dims,
                      std::string_view bytes) {
  at::Tensor native = at::empty(dims, native_dtype(type));
  const int bits = info(type).bits;
  if (bits < 8) {
    const std::vector<uint8_t> codes = unpack_bits(bytes, bits, native.numel());
    std::memcpy(native.data_ptr(), codes.data(), codes.size());
  } else {
    if (bytes.size() != native.nbytes()) {
      fail(proto, "expected " + std::to_string(native.nbytes()) + " bytes of data, found " + std::to_string(bytes.size()));
    }
    std::memcpy(native.data_ptr(), bytes.data(), bytes.size());
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

// The typed field that holds a type's elements, as the bytes raw_data would have.
std::string field_bytes(const onnx::TensorProto& proto, ElementType type) {
  switch (type) {
    case Float:
    case Complex64: return packed_as<float>(proto.float_data());
    case Double:
    case Complex128: return packed_as<double>(proto.double_data());
    case Int64: return packed_as<int64_t>(proto.int64_data());
    case Uint32: return packed_as<uint32_t>(proto.uint64_data());
    case Uint64: return packed_as<uint64_t>(proto.uint64_data());
    case Int32: return packed_as<int32_t>(proto.int32_data());
    default: return info(type).bits == 16 ? packed_as<uint16_t>(proto.int32_data()) : packed_as<uint8_t>(proto.int32_data());
  }
}

std::string external_bytes(const onnx::TensorProto& proto, const std::filesystem::path& directory) {
  std::string location;
  int64_t offset = 0, length = -1;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = std::stoll(entry.value());
    if (entry.key() == "length") length = std::stoll(entry.value());
  }
  const std::filesystem::path relative = std::filesystem::path(location).lexically_normal();
  if (location.empty() || relative.is_absolute() || *relative.begin() == "..") {
    fail(proto, "its external data must lie in a file beside or below the model, not in \"" + location + "\"");
  }
  std::ifstream file(directory / relative, std::ios::binary | std::ios::ate);
  if (!file) fail(proto, "cannot open its external data file " + (directory / relative).string());
  const int64_t size = file.tellg();
  if (length < 0) length = size - offset;
  if (offset < 0 || length < 0 || offset + length > size) fail(proto, "its external data lies outside " + location);
  std::string bytes(length, '\0');
  file.seekg(offset);
  file.read(bytes.data(), length);
  return bytes;
}

}  // namespace

ElementType element_type(const onnx::TensorProto& proto) { return static_cast<ElementType>(proto.data_type()); }

at::Tensor TensorReader::read(const onnx::TensorProto& proto) const {
  const ElementType type = element_type(proto);
  if (type == Undefined || proto.data_type() > static_cast<int>(Float6e3m2)) {
    fail(proto, "unknown element type " + std::to_string(proto.data_type()));
  }
  const std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  if (type == String) {
    if (proto.string_data_size() != count_of(dims)) fail(proto, "its number of strings does not fit its shape");
    at::Tensor ids = at::empty(dims, c10::kLong);
    for (int i = 0; i < proto.string_data_size(); ++i) ids.data_ptr<int64_t>()[i] = intern(proto.string_data(i));
    return ids;
  }
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    return to_storage(type, from_bytes(proto, type, dims, external_bytes(proto, directory)));
  }
  if (proto.has_raw_data()) return to_storage(type, from_bytes(proto, type, dims, proto.raw_data()));
  if (info(type).bits == 6) {  // one code an entry here, unlike raw_data
    const std::string codes = packed_as<uint8_t>(proto.int32_data());
    if (static_cast<int64_t>(codes.size()) != count_of(dims)) fail(proto, "its number of elements does not fit its shape");
    return to_storage(type, at::from_blob(const_cast<char*>(codes.data()), dims, c10::kByte));
  }
  return to_storage(type, from_bytes(proto, type, dims, field_bytes(proto, type)));
}

at::Tensor TensorReader::read(const onnx::SparseTensorProto& proto) const {
  const std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  const at::Tensor values = read(proto.values());
  at::Tensor positions = read(proto.indices());
  if (positions.dim() == 2) {  // one coordinate tuple a row: linearise
    at::Tensor linear = at::zeros({positions.size(0)}, c10::kLong);
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      linear = linear.mul(dims[axis]).add(positions.select(1, static_cast<int64_t>(axis)));
    }
    positions = linear;
  }
  at::Tensor dense = at::zeros({count_of(dims)}, values.options());
  dense.index_put_({positions}, values);
  return dense.reshape(dims);
}

}  // namespace onnxtorch
