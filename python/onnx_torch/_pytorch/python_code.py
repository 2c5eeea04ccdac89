"""The Python code of a TorchScript graph, which `torch.compile` and `torch.export` can look into."""

from __future__ import annotations

import itertools
import keyword
import linecache
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch

from .names import WORDS

__all__ = ["forward_function", "python_code"]

# The numbers that TorchScript gives to dtypes.
_NUMBERS = {
    dtype: torch.ops.prim.dtype(torch.empty(0, dtype=dtype, device="meta"))
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not re.match(r"torch\.(q|b?complex32)", str(dtype))
}
_DTYPES = {number: dtype for dtype, number in _NUMBERS.items()}
_FORMATS = {
    0: "torch.contiguous_format",
    1: "torch.preserve_format",
    2: "torch.channels_last",
    3: "torch.channels_last_3d",
}

# The Python text of each operator. One that has a tensor among its operands or results is in the second table only.
_OF_NUMBERS = {
    "aten::__derive_index": "{1} + {0} * {2}",
    "aten::__not__": "not {0}",
    "aten::__range_length": "len(range({all}))",
    "aten::_infer_size": "list(torch.broadcast_shapes({all}))",
    "aten::ceil": "math.ceil({0})",
    "aten::copy": "list({0})",
    "aten::log1p": "math.log1p({0})",
    "aten::neg": "-{0}",
    "aten::promote_types": "NUMBERS[torch.promote_types(DTYPES[{0}], DTYPES[{1}])]",
    "aten::slice": "{0}[{1}:{2}:{3}]",
    "aten::sort": "{0}.sort(reverse={1})",
    "aten::sqrt": "math.sqrt({0})",
    "prim::abs": "abs({0})",
    "prim::max": "max({all})",
    "prim::min": "min({all})",
} | {
    f"aten::{name}": f"{{0}} {sign} {{1}}"
    for name, sign in {
        "__and__": "&", "__or__": "|", "add": "+", "div": "/", "eq": "==", "floordiv": "//", "ge": ">=", "gt": ">",
        "le": "<=", "lt": "<", "mul": "*", "ne": "!=", "remainder": "%", "sub": "-",
    }.items()
}  # fmt: skip
_OF_ANYTHING = {
    "aten::Bool": "bool({0})",
    "aten::Float": "float({0})",
    "aten::Int": "int({0})",
    "aten::__contains__": "{1} in {0}",
    "aten::__getitem__": "{0}[{1}]",
    "aten::__is__": "{0} is {1}",
    "aten::__isnot__": "{0} is not {1}",
    "aten::_set_item": "{0}[{1}] = {2}",
    "aten::_unwrap_optional": "{0}",
    "aten::append": "{0}.append({1})",
    "aten::cpu": "{0}.cpu()",
    "aten::dim": "{0}.dim()",
    "aten::element_size": "{0}.element_size()",
    "aten::format": "{0}.format({rest})",
    "aten::grad": "list(torch.autograd.grad({0}, {1}, {2}, {3}, {4}, allow_unused={5}))",
    "aten::insert": "{0}.insert({1}, {2})",
    "aten::is_floating_point": "{0}.is_floating_point()",
    "aten::item": "{0}.item()",
    "aten::len": "len({0})",
    "aten::numel": "{0}.numel()",
    "aten::pop": "{0}.pop({1})",
    "aten::requires_grad_": "{0}.requires_grad_({1})",
    "aten::reverse": "{0}.reverse()",
    "aten::size": "list({0}.shape)",
    "aten::size.int": "{0}.shape[{1}]",
    "aten::stride": "{0}.stride({1})",
    "aten::tensor": "torch.tensor({0}, dtype={1}, device={2})",
    "prim::ListConstruct": "[{all}]",
    "prim::ListUnpack": "{0}",
    "prim::NumToTensor": "torch.tensor({0})",
    "prim::TupleConstruct": "({all},)",
    "prim::TupleIndex": "{0}[{1}]",
    "prim::TupleUnpack": "{0}",
    "prim::Uninitialized": "None",
    "prim::device": "{0}.device",
    "prim::dtype": "NUMBERS[{0}.dtype]",
    "prim::tolist": "{0}.tolist()",
    "prim::unchecked_cast": "{0}",
}
_MODULES = {
    "math": math,
    "torch": torch,
    "ops": torch.ops,
    "inf": math.inf,
    "nan": math.nan,
    "NUMBERS": _NUMBERS,
    "DTYPES": _DTYPES,
}


# The operators that return the list which they changed.
_IN_PLACE = ("aten::append", "aten::_set_item")


def python_code(graph: torch._C.Graph, onnx_nodes: Sequence[str]) -> str:
    """Writes a function ``forward`` that does what the graph of a method does.

    `onnx_nodes` describes the ONNX nodes, by index.
    """
    return _Writer(graph, onnx_nodes).code()


def forward_function(code: str) -> Callable[..., Any]:
    """Compiles the code that `python_code` wrote, and returns its function."""
    # Tracebacks show the lines of files that linecache knows.
    file = f"<onnx_torch forward {next(_file_numbers)}>"
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    scope = {**_MODULES, "__name__": __name__}
    exec(compile(code, file, "exec"), scope)
    return cast(Callable[..., Any], scope["forward"])


_file_numbers = itertools.count()


def _literal(value: Any) -> str:
    return f"torch.{value!r}" if isinstance(value, torch.device) else repr(value)


def _is_true(value: torch._C.Value) -> bool:
    constant: Any = value.toIValue()
    return constant is True


def _nodes(block: torch._C.Block | torch._C.Graph) -> Iterator[torch._C.Node]:
    """Yields the nodes with those of inner blocks."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _last_uses(graph: torch._C.Graph) -> dict[int, list[torch._C.Value]]:
    """Returns the tensors that each of the graph's outermost nodes uses for the last time, by the node's index."""
    defined: dict[str, torch._C.Value] = {}
    last: dict[str, int] = {}
    for i, node in enumerate(graph.nodes()):
        for inner in (node, *(inner for block in node.blocks() for inner in [*_nodes(block), block.returnNode()])):
            last.update((value.debugName(), i) for value in inner.inputs() if value.debugName() in defined)
        if node.kind() not in ("prim::Constant", "prim::GetAttr", *_IN_PLACE):
            defined.update((value.debugName(), value) for value in node.outputs() if "Tensor" in str(value.type()))
    changed = [next(node.inputs()) for node in _nodes(graph) if node.kind() in _IN_PLACE]
    for value in [*graph.outputs(), *changed]:
        last.pop(value.debugName(), None)
    result: dict[int, list[torch._C.Value]] = {}
    for name, i in last.items():
        result.setdefault(i, []).append(defined[name])
    return result


class _Writer:
    def __init__(self, graph: torch._C.Graph, onnx_nodes: Sequence[str]) -> None:
        self._graph = graph
        self._onnx_nodes = onnx_nodes
        self._names: dict[str, str] = {}  # Python's name or literal for a value, by its name in the graph
        self._taken = {*WORDS, *keyword.kwlist}
        self._lines: list[str] = []
        self._indent = 1
        self._node = ""

    def code(self) -> str:
        arguments = [self._define(value) for value in self._graph.inputs()]
        self._lines = [f"def forward({', '.join(arguments)}):"]
        last_uses = _last_uses(self._graph)
        for i, node in enumerate(self._graph.nodes()):
            self._write(node)
            done = [self._name(value) for value in last_uses.get(i, [])]
            if done:
                self._line(f"del {', '.join(done)}")  # frees its memory
        self._line(f"return {self._name(next(self._graph.outputs()))}")
        return "\n".join(self._lines) + "\n"

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def _name(self, value: torch._C.Value) -> str:
        return self._names[value.debugName()]

    def _define(self, value: torch._C.Value) -> str:
        return self._alias(value, self._new_name(value.debugName()))

    def _new_name(self, like: str) -> str:
        base = re.sub(r"\W.*", "", like, flags=re.ASCII)
        base = base if base.isidentifier() else "v" + base
        free = (
            name
            for name in itertools.chain([base], (f"{base}_{i}" for i in itertools.count(1)))
            if name not in self._taken
        )
        name = next(free)
        self._taken.add(name)
        return name

    def _alias(self, value: torch._C.Value, name: str) -> str:
        self._names[value.debugName()] = name
        return name

    def _write(self, node: torch._C.Node) -> None:
        kind = node.kind()
        if kind == "prim::Constant":
            self._alias(node.output(), _literal(node.output().toIValue()))
            return
        if kind == "prim::GetAttr":
            owner, attribute = self._name(node.input()), node.s("name")
            text = f"{owner}.{attribute}" if attribute.isidentifier() else f"getattr({owner}, {attribute!r})"
            self._assign(node, text)
            return
        self._comment(node)
        if kind == "prim::If":
            self._write_if(node)
        elif kind == "prim::Loop":
            self._write_loop(node)
        elif kind == "prim::RaiseException":
            self._line(f"raise RuntimeError({self._name(next(node.inputs()))})")
        else:
            self._assign(node, self._expression(node))

    def _comment(self, node: torch._C.Node) -> None:
        found = re.fullmatch(r"onnx-node-(\d+)", str(node.sourceRange()))
        if found and found[1] != self._node:
            self._node = found[1]
            self._line(f"# {ascii(self._onnx_nodes[int(found[1])])[1:-1]}")

    def _assign(self, node: torch._C.Node, expression: str) -> None:
        if node.kind() in _IN_PLACE:
            self._line(expression)
            self._alias(node.output(), self._name(next(node.inputs())))
            return
        names = [self._define(output) for output in node.outputs()]
        if not names:
            self._line(expression)
            return
        unpacks = node.kind() in ("prim::TupleUnpack", "prim::ListUnpack")
        self._line(f"{', '.join(names)}{',' if unpacks and len(names) == 1 else ''} = {expression}")

    def _expression(self, node: torch._C.Node) -> str:
        kind = node.kind()
        inputs = list(node.inputs())
        has_tensor = any(value.type().kind() == "TensorType" for value in [*inputs, *node.outputs()])
        overload = f"{kind}.int" if kind == "aten::size" and len(inputs) == 2 else kind
        template = _OF_ANYTHING.get(overload) or (None if has_tensor else _OF_NUMBERS.get(kind))
        if not template:
            return self._call(node, inputs)
        texts = [self._name(value) for value in inputs]
        if kind == "aten::tensor":
            texts[1] = self._argument(inputs[1], "ScalarType")
        return template.format(*texts, all=", ".join(texts), rest=", ".join(texts[1:]))

    def _call(self, node: torch._C.Node, inputs: list[torch._C.Value]) -> str:
        schema = torch._C.parse_schema(node.schema())
        namespace, name = schema.name.split("::")
        # TorchScript has some overloads of its own, for lists without None.
        overload = schema.overload_name.removesuffix("hacked_twin").removesuffix("_")
        texts = []
        for value, argument in zip(inputs, schema.arguments, strict=True):
            constant = value.node().kind() == "prim::Constant"
            if (
                argument.kwarg_only
                and constant
                and argument.has_default_value()
                and value.toIValue() == argument.default_value
            ):
                continue
            text = self._argument(value, str(argument.real_type))
            texts.append(f"{argument.name}={text}" if argument.kwarg_only else text)
        return f"ops.{namespace}.{name}.{overload or 'default'}({', '.join(texts)})"

    def _argument(self, value: torch._C.Value, type_name: str) -> str:
        """Writes an argument as PyTorch takes it: a dtype, layout or memory format where TorchScript has a number."""
        number = value.toIValue()
        if isinstance(number, int) and "MemoryFormat" in type_name:
            return _FORMATS[number]
        if isinstance(number, int) and "Layout" in type_name:
            return "torch.strided"
        if "ScalarType" in type_name and number is None and value.node().kind() != "prim::Constant":
            return f"DTYPES[{self._name(value)}]"
        if "ScalarType" in type_name and number is not None:
            return str(_DTYPES[number])
        return self._name(value)

    def _write_block(self, block: torch._C.Block, targets: list[str]) -> None:
        """Writes a block's nodes, and assigns what it returns to the targets: the last values where there are more."""
        self._indent += 1
        start = len(self._lines)
        for node in block.nodes():
            self._write(node)
        if targets:
            values = [self._name(value) for value in block.outputs()][-len(targets) :]
            self._line(f"{', '.join(targets)} = {', '.join(values)}")
        if len(self._lines) == start:
            self._line("pass")
        self._indent -= 1

    def _write_if(self, node: torch._C.Node) -> None:
        targets = [self._define(output) for output in node.outputs()]
        self._line(f"if {self._name(node.input())}:")
        then_block, else_block = node.blocks()
        self._write_block(then_block, targets)
        if targets or any(True for _ in else_block.nodes()):
            self._line("else:")
            self._write_block(else_block, targets)

    def _write_loop(self, node: torch._C.Node) -> None:
        # A loop has either a trip count or a condition; the export made it so.
        count, condition, *initial = node.inputs()
        (body,) = node.blocks()
        iteration, *carried = body.inputs()
        index = self._define(iteration)
        names = [self._define(value) for value in carried]
        for name, value in zip(names, initial, strict=True):
            self._line(f"{name} = {self._name(value)}")
        if _is_true(condition) and _is_true(next(body.outputs())):
            self._line(f"for {index} in range({self._name(count)}):")
            self._write_block(body, names)
        else:
            going = self._new_name("going")
            self._line(f"{going} = {self._name(condition)}")
            self._line(f"while {going}:")
            self._write_block(body, [going, *names])
        for output, name in zip(node.outputs(), names, strict=True):
            self._alias(output, name)
