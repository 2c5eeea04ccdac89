"""Arguments for an operator: likely ones, by what its schema calls them, and hostile ones."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import torch

from .operators import Overload, inner_types, is_given
from .tensors import Tensor

DTYPES = (torch.float32, torch.int64, torch.bool, torch.float64, torch.float16, torch.bfloat16, torch.int32)
RARE_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.complex64, torch.uint16, torch.uint64, torch.float8_e4m3fn)
SHAPES = ((2, 3), (3,), (4, 4), (), (1,), (2, 3, 4), (2, 4, 6, 6), (1, 3, 8), (2, 2, 4, 4, 4), (1, 2, 5), (6,))
HOSTILE_SHAPES = ((0,), (0, 3), (2, 0, 3), (1, 0, 4, 4), (1,) * 7, (300,), (1, 70), (7, 1, 0), (0,) * 5)
HOSTILE_INTS = (
    -1,
    0,
    1,
    -2,
    2,
    7,
    64,
    -100,
    1000,
    -(2**31),
    -(2**63),
    *(2**n - 1 for n in (31, 63)),
    2**31,
    2**40,
    2**62,
)
FORMS = {  # all values that a node may ask for
    "layout": (0,),
    "dtype": (*range(12), 15),
    "memory_format": (0, 1, 2, 3),
    "interpolation_mode": (0, 1, 2),
    "padding_mode": (0, 1, 2),
}
HOSTILE_FLOATS = (0.0, -1.0, 1.0, 0.5, 1e-320, 1e38, 1e308, -1e308, math.inf, -math.inf, math.nan)
TEXTS = {
    "reduction": ("none", "mean", "sum"),
    "rounding_mode": ("floor", "trunc"),
    "approximate": ("none", "tanh"),
    "mode": ("reflect", "constant", "replicate", "circular", "reduced", "complete", "r"),
    "padding": ("same", "valid"),
    "pad_mode": ("reflect", "constant"),
    "norm": ("ortho", "forward", "backward"),
    "indexing": ("ij", "xy"),
    "reduce": ("sum", "prod", "mean", "amax", "amin", "max", "min"),
    "interpolation": ("linear", "lower", "nearest"),
    "interpolation_mode": ("nearest",),
    "side": ("left", "right"),
    "equation": ("ij,jk->ik", "ij->ji", "i,j->ij", "...ij,...jk"),
    "UPLO": ("L", "U"),
    "ord": ("fro", "nuc"),
    "driver": ("gelsd", "gelsy"),
}
HOSTILE_TEXTS = ("", "x", "\0", "nuc", "ij,jk->ik", "...", "a" * 1000, "é", "%n%s")
FILLS = ("normal", "small", "one", "zero", "index")
HOSTILE_FILLS = ("largest", "lowest", "negative", "nan", "infinite", "mixed", "index", "zero")
LAYOUTS = ("dense", "dense", "dense", "transposed", "expanded", "every second")


class Drawer:
    """A source of random arguments; the same seed draws the same ones."""

    def __init__(self, overload: Overload, seed: int) -> None:
        self.draw = random.Random(f"{overload} {seed}")
        self.arguments = [a for a in overload.schema.arguments if is_given(a.type)]

    def likely(self) -> dict[str, Any]:
        """Draws arguments that the operator may well take: tensors of one shape and type, small numbers."""
        draw = self.draw
        self.shape = draw.choice(SHAPES)
        self.dtype = draw.choice(DTYPES) if draw.random() < 0.6 else torch.float32
        return {a.name: self._likely(a) for a in self.arguments if not self._left_out(a)}

    def mutated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Gives the same arguments, one or two of them hostile."""
        changed = dict(arguments)
        for argument in self.draw.choices(self.arguments, k=self.draw.choice((1, 1, 2))) if self.arguments else ():
            if self._left_out(argument):
                changed.pop(argument.name, None)
            else:
                changed[argument.name] = self._hostile(argument, changed.get(argument.name))
        return changed

    def hostile(self) -> dict[str, Any]:
        """Draws nothing but hostile arguments."""
        return {a.name: self._hostile(a, None) for a in self.arguments if not self._left_out(a)}

    def _left_out(self, argument: Any) -> bool:
        return argument.has_default_value() and self.draw.random() < 0.5

    def _likely(self, argument: Any) -> Any:
        draw = self.draw
        outer, *elements = inner_types(argument.type)
        if argument.type.kind() == "OptionalType" and draw.random() < 0.4:
            return None
        if elements and elements[0].kind() == "TensorType":
            nullable = outer.getElementType().kind() == "OptionalType"
            count = draw.randrange(1, 4)
            return [None if nullable and draw.random() < 0.2 else self._tensor(argument.name) for _ in range(count)]
        if elements:
            count = argument.N or draw.randrange(1, 1 + max(1, len(self.shape)))
            number = self._int if elements[0].kind() == "IntType" else self._float
            return [number(argument.name) for _ in range(count)]
        match outer.kind():
            case "TensorType":
                return self._tensor(argument.name)
            case "IntType":
                return self._int(argument.name)
            case "FloatType":
                return self._float(argument.name)
            case "NumberType":
                return draw.choice((1, 2, 0.5, 2.0))
            case "BoolType":
                return draw.random() < 0.5
            case "StringType":
                return draw.choice(TEXTS.get(argument.name, ("mean", "sum", "linear")))
            case _:
                return "cpu"

    def _tensor(self, name: str) -> Tensor:
        draw = self.draw
        names_indices = any(part in name for part in ("ind", "target", "offsets", "repeats"))
        dtype = torch.int64 if names_indices and draw.random() < 0.7 else self.dtype
        if name in ("mask", "condition") and draw.random() < 0.7:
            dtype = torch.bool
        shape = self.shape if draw.random() < 0.8 else draw.choice(SHAPES)
        return Tensor(shape, dtype, "index" if names_indices else draw.choice(FILLS), draw.choice(LAYOUTS))

    def _int(self, name: str) -> int | None:
        draw = self.draw
        if name in FORMS:
            return draw.choice(FORMS[name])
        if name == "reduction":
            return draw.choice((0, 1, 2))
        if "dim" in name:
            return draw.randrange(-1, 2)
        if any(part in name for part in ("stride", "dilation", "kernel", "groups", "size", "output", "num")):
            return draw.choice((1, 1, 2, 3))
        return draw.choice((0, 1, 1, 2, 3))

    def _float(self, name: str) -> float:
        return self.draw.choice((0.5, 1.0, 2.0, 1e-5))

    def _hostile(self, argument: Any, before: Any) -> Any:
        draw = self.draw
        outer, *elements = inner_types(argument.type)
        if argument.type.kind() == "OptionalType" and draw.random() < 0.2:
            return None
        if elements and elements[0].kind() == "TensorType":
            if isinstance(before, list) and before and draw.random() < 0.7:
                changed = list(before)
                changed[draw.randrange(len(changed))] = self._hostile_tensor(draw.choice(before))
                return changed
            return [self._hostile_tensor(None) for _ in range(draw.randrange(0, 4))]
        if elements:
            numbers: tuple[Any, ...] = HOSTILE_INTS if elements[0].kind() == "IntType" else HOSTILE_FLOATS
            if isinstance(before, list) and before and draw.random() < 0.7:
                changed = list(before)
                changed[draw.randrange(len(changed))] = draw.choice(numbers)
                return changed
            return [draw.choice(numbers) for _ in range(draw.randrange(0, 7))]
        match outer.kind():
            case "TensorType":
                return self._hostile_tensor(before)
            case "IntType":
                return draw.choice(FORMS.get(argument.name, HOSTILE_INTS))
            case "FloatType":
                return draw.choice(HOSTILE_FLOATS)
            case "NumberType":
                return draw.choice((*HOSTILE_INTS, *HOSTILE_FLOATS))
            case "BoolType":
                return draw.random() < 0.5
            case "StringType":
                return draw.choice((*HOSTILE_TEXTS, *TEXTS.get(argument.name, ())))
            case _:
                return "cpu"

    def _hostile_tensor(self, before: Any) -> Tensor:
        draw = self.draw
        tensor = before if isinstance(before, Tensor) else Tensor(draw.choice(SHAPES), draw.choice(DTYPES))
        shape, dtype, fill, layout = tensor.shape, tensor.dtype, tensor.fill, tensor.layout
        what = draw.choice(("shape", "size", "fill", "fill", "dtype", "layout"))
        if what == "shape":
            shape = draw.choice((*HOSTILE_SHAPES, *SHAPES))
        elif what == "size" and shape:
            at = draw.randrange(len(shape))
            shape = (*shape[:at], draw.choice((0, 1, 2, 5, 17)), *shape[at + 1 :])
        elif what == "dtype":
            dtype = draw.choice((*DTYPES, *RARE_DTYPES))
        elif what == "layout":
            layout = draw.choice(LAYOUTS)
        else:
            fill = draw.choice(HOSTILE_FILLS)
        if math.prod(shape) > 5000:
            shape = (3,)
        return Tensor(shape, dtype, fill, layout)
