// The boxes of NonMaxSuppression.
#pragma once

#include <algorithm>

#include "base/both_sides.h"

namespace onnxtorch {

struct Box {
  float y_min, x_min, y_max, x_max;

  ONNX_TORCH_BOTH float area() const { return (y_max - y_min) * (x_max - x_min); }
};

ONNX_TORCH_BOTH inline Box box_of_corners(const float* p) {
  const bool y_ascends = !(p[2] < p[0]), x_ascends = !(p[3] < p[1]);
  return {y_ascends ? p[0] : p[2], x_ascends ? p[1] : p[3], y_ascends ? p[2] : p[0], x_ascends ? p[3] : p[1]};
}

ONNX_TORCH_BOTH inline Box box_around_center(const float* p) {
  const float half_width = p[2] / 2, half_height = p[3] / 2;
  return {p[1] - half_height, p[0] - half_width, p[1] + half_height, p[0] + half_width};
}

ONNX_TORCH_BOTH inline Box box_of(const float* p, bool center_point_box) {
  return center_point_box ? box_around_center(p) : box_of_corners(p);
}

ONNX_TORCH_BOTH inline float intersection_over_union(const Box& a, const Box& b) {
  const float height = std::min(a.y_max, b.y_max) - std::max(a.y_min, b.y_min);
  const float width = std::min(a.x_max, b.x_max) - std::max(a.x_min, b.x_min);
  const bool meet = height > 0 && width > 0;
  if (!meet) return 0;
  const float common = height * width;
  const float either = a.area() + b.area() - common;
  return either > 0 ? common / either : 0;
}

}  // namespace onnxtorch
