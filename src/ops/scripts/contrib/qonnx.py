# BipolarQuant, FloatQuant, MultiThreshold, Quant, Trunc. The width of the integers is a tensor, and need not be whole.


def rounded_as_named(x: Tensor, rounding_mode: str) -> Tensor:
    mode = rounding_mode.upper()
    if mode == "ROUND" or mode == "HALF_EVEN":
        return torch.round(x)
    if mode == "FLOOR":
        return torch.floor(x)
    if mode == "CEIL":
        return torch.ceil(x)
    if mode == "DOWN":
        return torch.trunc(x)
    size = torch.abs(x)
    if mode == "UP":
        size = torch.ceil(size)
    elif mode == "HALF_UP":
        size = torch.floor(size + 0.5)
    else:
        assert mode == "HALF_DOWN", "there is no rounding_mode {}".format(rounding_mode)
        size = torch.ceil(size - 0.5)
    return torch.copysign(size, x)


# Clamps numbers to what integers of a width can be. A narrow range has one number less.
def within_bits(x: Tensor, bitwidth: Tensor, signed: bool, narrow: bool) -> Tensor:
    count = torch.exp2(bitwidth - 1 if signed else bitwidth)
    lowest = -count + int(narrow) if signed else torch.zeros_like(count)
    highest = count - (2 if narrow and not signed else 1)
    return torch.minimum(torch.maximum(x, lowest), highest)


def sign_of_two(x: Tensor) -> Tensor:
    return torch.where(x >= 0, torch.ones_like(x), -torch.ones_like(x))


def bipolar_quant(X: Tensor, scale: Tensor) -> Tensor:
    return sign_of_two(X) * scale


# Quantizes and dequantizes. Signed integers of one bit are -1 and 1.
def quant(
    X: Tensor, scale: Tensor, zeropt: Tensor, bitwidth: Tensor, signed: bool, narrow: bool, rounding_mode: str
) -> Tensor:
    steps = X / scale + zeropt
    levels = rounded_as_named(within_bits(steps, bitwidth, signed, narrow), rounding_mode)
    if signed:
        levels = torch.where(bitwidth == 1, sign_of_two(steps), levels)
    return (levels - zeropt) * scale


# Drops the last bits of integers. In the first form the widths before and after give their number, and the scale stays;
# with six inputs the scales give it, whose ratio is made a power of two.
def trunc_quant(
    X: Tensor,
    scale: Tensor,
    zeropt: Tensor,
    in_bitwidth: Tensor,
    out_scale_or_bitwidth: Tensor,
    out_bitwidth: Optional[Tensor],
    signed: bool,
    narrow: bool,
    rounding_mode: str,
) -> Tensor:
    steps = torch.round(X / scale + zeropt)
    if out_bitwidth is None:
        levels = rounded_as_named(steps / torch.exp2(in_bitwidth - out_scale_or_bitwidth), rounding_mode)
        return (levels - zeropt) * scale
    ratio = torch.exp2(torch.round(torch.log2(out_scale_or_bitwidth / scale)))
    levels = rounded_as_named(within_bits(steps / ratio, out_bitwidth, signed, narrow), rounding_mode)
    return (levels - zeropt / ratio) * out_scale_or_bitwidth


# Rounds to the nearest number with so many bits of exponent and mantissa, of which the smallest are subnormal. The
# codes of infinity and NaN only matter through max_val, which leaves them out.
def float_quant(
    X: Tensor,
    scale: Tensor,
    exponent_bitwidth: Tensor,
    mantissa_bitwidth: Tensor,
    exponent_bias: Tensor,
    max_val: Tensor,
    rounding_mode: str,
) -> Tensor:
    assert rounding_mode.upper() in ["ROUND", "CEIL", "FLOOR"], "there is no rounding_mode {}".format(rounding_mode)
    x = X / scale
    _, exponent = torch.frexp(x)
    last_bit = torch.maximum(exponent - 1 - mantissa_bitwidth, 1 - exponent_bias - mantissa_bitwidth)
    step = torch.exp2(last_bit)
    most = (2 - torch.exp2(-mantissa_bitwidth)) * torch.exp2(torch.exp2(exponent_bitwidth) - 1 - exponent_bias)
    largest = torch.minimum(most, max_val)
    y = step * rounded_as_named(x / step, rounding_mode)
    return torch.minimum(torch.maximum(y, -largest), largest) * scale


# Counts the thresholds of its channel that a number reaches. In images the channels are where data_layout says, else
# last.
def multi_threshold(
    v: Tensor, thresholds: Tensor, out_scale: float, out_bias: float, data_layout: str
) -> Tensor:
    assert data_layout == "NCHW" or data_layout == "NHWC", "there is no data_layout {}".format(data_layout)
    assert data_layout == "NCHW" or v.dim() == 2 or v.dim() == 4, "data_layout NHWC is of 2 or 4 dimensions, not {}".format(
        v.dim()
    )
    axis = 1 if v.dim() == 4 and data_layout == "NCHW" else -1
    assert thresholds.dim() == 2 and thresholds.size(0) in [1, v.size(axis)], (
        "thresholds of shape {} are not those of {} channels".format(thresholds.size(), v.size(axis))
    )
    reached = torch.unsqueeze(torch.movedim(v, axis, -1), -1) >= thresholds
    return torch.movedim(torch.sum(reached, -1), -1, axis).to(v.dtype) * out_scale + out_bias
