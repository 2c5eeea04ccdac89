// The functions that Conv, ConvTranspose and the pools share: windows that slide over the spatial dimensions of (N, C,
// D1, …, Dn).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "translate/translator.h"

namespace onnxtorch {

// Gives the number of spatial dimensions, from the attributes or from what is known of the first two inputs.
std::optional<size_t> spatial_rank(const Translator& t, const NodeView& n);

// Gives x, which must have so many spatial dimensions: fails where it is known to have others, and in a run where it is
// not known.
Value of_spatial_rank(Translator& t, const NodeView& n, const Value& x, size_t rank);

// Gives the attribute, or `value` for each axis where it is absent.
std::vector<int64_t> per_axis(const NodeView& n, std::string_view name, size_t rank, int64_t value);

// Gives the pads of x by auto_pad and pads, as int[].
Value window_pads(Translator& t, const NodeView& n, const Value& x, const Value& kernel,
                  const std::vector<int64_t>& strides, const std::vector<int64_t>& dilations);

// Gives one padding for both ends of each axis, where the pads are known and such.
std::optional<std::vector<int64_t>> symmetric(const Translator& t, const Value& pads);

Value padded(Translator& t, const Value& x, const Value& pads, Arg fill);

// Tells whether x is known to have no elements for another reason than an empty batch, which ATen takes.
bool is_known_empty(const Translator& t, const Value& x);

// The arguments of ATen's convolution but for the bias. Pads, a list as constant_pad_nd takes it, go around x before;
// they are absent where `padding` says all.
struct AtenConvolution {
  Value x, w, pads;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups;
};

// Gives how ATen convolves the first two inputs of a node that has Conv's attributes; nothing where ATen does not.
std::optional<AtenConvolution> aten_convolution(Translator& t, const NodeView& n);

// Translates Conv, of the first three inputs of a node that has Conv's attributes.
Values conv(Translator& t, const NodeView& n);

// Translates ConvTranspose likewise; pads, an int[], stand for the attribute where they are given.
Values conv_transpose(Translator& t, const NodeView& n, const Value& pads);

// Translates AveragePool, of the first input of a node that has its attributes. Where padding counts, the part of a
// window that hangs over the padded end in ceil_mode does not, unless it is taken for padding, too.
Values average_pool(Translator& t, const NodeView& n, bool overhang_is_padding);

}  // namespace onnxtorch
