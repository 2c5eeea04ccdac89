// An object of Python that threads may copy and let go without Python's lock.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

#include "gil.h"

namespace onnxtorch {

inline std::shared_ptr<pybind11::object> shared(pybind11::object object) {
  return {new pybind11::object(std::move(object)), [](const pybind11::object* held) {
            const WithGil gil;
            delete held;
          }};
}

}  // namespace onnxtorch
