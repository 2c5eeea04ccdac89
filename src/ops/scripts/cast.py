# BitCast. Floats of 4 and 6 bits are stored as values, so their codes are computed.


def small_float_value(code: Tensor, exponent_bits: int, mantissa_bits: int, bias: int) -> Tensor:
    code = code.to(torch.int32)
    mantissa = torch.bitwise_and(code, (1 << mantissa_bits) - 1)
    exponent = torch.bitwise_and(torch.bitwise_right_shift(code, mantissa_bits), (1 << exponent_bits) - 1)
    significand = torch.where(exponent > 0, mantissa + (1 << mantissa_bits), mantissa)
    magnitude = torch.ldexp(significand.to(torch.float32), torch.clamp_min(exponent, 1) - (bias + mantissa_bits))
    is_negative = torch.bitwise_and(code, 1 << (exponent_bits + mantissa_bits)) != 0
    return torch.where(is_negative, -magnitude, magnitude)


def small_float_code(value: Tensor, exponent_bits: int, mantissa_bits: int, bias: int) -> Tensor:
    sign = 1 << (exponent_bits + mantissa_bits)
    codes = torch.arange(sign, device=value.device)
    magnitude = torch.abs(value.to(torch.float32))
    code = torch.bucketize(magnitude, small_float_value(codes, exponent_bits, mantissa_bits, bias))
    return torch.where(torch.signbit(value), code + sign, code)
