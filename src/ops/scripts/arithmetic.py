# Shape arithmetic on the host, division of integers, and the broadcasting of old opsets.


# Divides, and truncates. Division by 0 would end the process, as would that of the least integer by -1. These divisors
# have a branch of their own, as what is folded while translating may run on behind an assert that fails.
def truncated_quotient(a: int, b: int) -> int:
    if b == 0 or b == -1:
        assert b != 0, "division by zero"
        return -a
    floor = a // b
    return floor + 1 if floor < 0 and floor * b != a else floor


def floor_remainder(a: int, b: int) -> int:
    if b == 0 or b == -1:
        assert b != 0, "division by zero"
        return 0
    return a % b


# Does an operation of integers, which is named like the ONNX operator.
def int_arithmetic(operation: str, a: int, b: int) -> int:
    if operation == "Add":
        return a + b
    elif operation == "Sub":
        return a - b
    elif operation == "Mul":
        return a * b
    elif operation == "Div":
        return truncated_quotient(a, b)
    elif operation == "Mod":
        return floor_remainder(a, b)
    elif operation == "Min":
        return min(a, b)
    else:
        assert operation == "Max"
        return max(a, b)


def int_comparison(operation: str, a: int, b: int) -> bool:
    if operation == "Equal":
        return a == b
    elif operation == "Greater":
        return a > b
    elif operation == "GreaterOrEqual":
        return a >= b
    elif operation == "Less":
        return a < b
    else:
        assert operation == "LessOrEqual"
        return a <= b


# Gives the size that two dimensions broadcast to.
def broadcast_size(a: int, b: int) -> int:
    assert a == b or a == 1 or b == 1, "the shapes do not broadcast"
    return b if a == 1 else a


# Does the same for the lengths of two lists. A shape has few elements; a file may ask for lists as large as its memory,
# on which an operation takes minutes.
def broadcast_length(a: int, b: int) -> int:
    assert max(a, b) <= 16777216, "shape arithmetic takes 16777216 numbers at most"
    return broadcast_size(a, b)


# Keeps the lowest 32 bits, as int32 does.
def int_of_32_bits(value: int) -> int:
    return (value + 2147483648) % 4294967296 - 2147483648


def ints_of_32_bits(values: List[int]) -> List[int]:
    return [int_of_32_bits(value) for value in values]


def ints_arithmetic(operation: str, a: List[int], b: List[int]) -> List[int]:
    result: List[int] = []
    for i in range(broadcast_length(len(a), len(b))):
        result.append(int_arithmetic(operation, a[min(i, len(a) - 1)], b[min(i, len(b) - 1)]))
    return result


def ints_comparison(operation: str, a: List[int], b: List[int]) -> List[bool]:
    result: List[bool] = []
    for i in range(broadcast_length(len(a), len(b))):
        result.append(int_comparison(operation, a[min(i, len(a) - 1)], b[min(i, len(b) - 1)]))
    return result


def int_where(condition: bool, x: int, y: int) -> int:
    return x if condition else y


def ints_where(condition: List[bool], x: List[int], y: List[int]) -> List[int]:
    result: List[int] = []
    for i in range(broadcast_length(len(condition), broadcast_length(len(x), len(y)))):
        chosen = x if condition[min(i, len(condition) - 1)] else y
        result.append(chosen[min(i, len(chosen) - 1)])
    return result


def wrapping_div(a: Tensor, b: Tensor) -> Tensor:
    negates = b == -1
    quotient = torch.div(a, torch.where(negates, 1, b), rounding_mode="trunc")
    return torch.where(negates, -quotient, quotient)


# Gives the remainder with the divisor's sign. What 1 divides, -1 does as well; the remainder of the least integer by -1
# would end the process.
def floor_mod(a: Tensor, b: Tensor) -> Tensor:
    return torch.remainder(a, torch.where(b == -1, 1, b))


def truncated_mod(a: Tensor, b: Tensor) -> Tensor:
    return torch.fmod(a, torch.where(b == -1, 1, b))


# Compares uint64, which int64 tensors hold bit for bit: with the sign bit flipped, the signed order is the unsigned
# one.
def unsigned_ge(a: Tensor, b: Tensor) -> Tensor:
    sign = -9223372036854775807 - 1
    return torch.bitwise_xor(a, sign) >= torch.bitwise_xor(b, sign)


def unsigned_shift_right(a: Tensor, by: int) -> Tensor:
    return torch.bitwise_and(torch.bitwise_right_shift(a, by), (1 << (64 - by)) - 1)


def unsigned_div(a: Tensor, b: Tensor) -> Tensor:
    # A divisor with the highest bit set goes into it once or not at all. Any other can divide half of the dividend.
    is_large = b < 0
    half = torch.div(unsigned_shift_right(a, 1), torch.where(is_large, 1, b), rounding_mode="trunc")
    quotient = torch.where(is_large, 0, half * 2)
    return quotient + unsigned_ge(a - quotient * b, b).to(torch.int64)


def unsigned_mod(a: Tensor, b: Tensor) -> Tensor:
    return a - unsigned_div(a, b) * b


# Reshapes the second operand so that its first dimension is `axis` of the first operand.
def aligned(a: Tensor, b: Tensor, axis: int) -> Tensor:
    start = axis + a.dim() if axis < 0 else axis
    return torch.reshape(b, b.size() + [1] * (a.dim() - start - b.dim()))
