#include "external_reader.h"

#include "shared_object.h"

namespace onnxtorch {
namespace {

namespace py = pybind11;

// Gives the memory of an object, which is kept from being moved or changed in size as long as the bytes are held.
Bytes bytes_of(py::handle object) {
  auto* const buffer = new Py_buffer{};
  const std::shared_ptr<const Py_buffer> owner(buffer, [](Py_buffer* held) {
    const WithGil gil;
    PyBuffer_Release(held);  // does nothing for one that was never filled
    delete held;
  });
  if (PyObject_GetBuffer(object.ptr(), buffer, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  return {{static_cast<const char*>(buffer->buf), static_cast<size_t>(buffer->len)}, owner};
}

}  // namespace

ExternalReader reader_from_python(const py::object& external) {
  if (external.is_none()) return {};
  if (!PyCallable_Check(external.ptr())) {
    std::map<std::string, Bytes> files;
    for (const auto& [name, buffer] : py::cast<py::dict>(external))
      files[py::cast<std::string>(name)] = bytes_of(buffer);
    return in_memory(std::move(files));
  }
  return [read = shared(external)](const std::string& name, int64_t offset, int64_t length) -> std::optional<Bytes> {
    const WithGil gil;
    const py::object given = (*read)(name, offset, length);
    if (given.is_none()) return std::nullopt;
    return bytes_of(given);
  };
}

}  // namespace onnxtorch
