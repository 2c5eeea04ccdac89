"""The names that an exported module has for the parts of a model."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["WORDS", "Names", "names_of", "torch_names"]

# The names that mean something in the Python code of `to_module`.
WORDS = frozenset(
    "DTYPES NUMBERS RuntimeError abs bool float getattr inf int len list math max min nan ops range torch".split()
)

# The names that every module has already, and words of TorchScript; a test compares them with torch's modules.
_ATTRIBUTES = frozenset(keyword.kwlist).union(
    """
    T_destination _apply _backward_hooks _backward_pre_hooks _buffers _c _call_impl _compiled_call_impl
    _concrete_type _constants _constants_set _construct _disable_script_meta _finalize_scriptmodule _forward_hooks
    _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks _forward_pre_hooks_with_kwargs
    _get_backward_hooks _get_backward_pre_hooks _get_name _initializing _is_full_backward_hook _load_from_state_dict
    _load_state_dict_post_hooks _load_state_dict_pre_hooks _maybe_warn_non_full_backward_hook _methods _modules
    _named_members _non_persistent_buffers_set _parameters _reconstruct _register_load_state_dict_pre_hook
    _register_state_dict_hook _replicate_for_data_parallel _save_for_lite_interpreter
    _save_to_buffer_for_lite_interpreter _save_to_state_dict _slow_forward _state_dict_hooks _state_dict_pre_hooks
    _version _wrapped_call_impl add_module apply bfloat16 buffers call_super_init children code code_with_constants
    compile cpu cuda define double dump_patches eval extra_repr float forward forward_magic_method get_buffer
    get_debug_state get_extra_state get_parameter get_submodule graph graph_for half inlined_graph ipu
    load_state_dict modules mtia named_buffers named_children named_modules named_parameters onnx_names
    original_name parameters register_backward_hook register_buffer register_forward_hook register_forward_pre_hook
    register_full_backward_hook register_full_backward_pre_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_module register_parameter register_state_dict_post_hook
    register_state_dict_pre_hook requires_grad_ save save_to_buffer set_extra_state set_submodule share_memory
    state_dict to to_empty torch train training type xpu zero_grad
    """.split()
)
_ARGUMENTS = WORDS.union(
    keyword.kwlist, "CONSTANTS __torch__ aten attribute fork infj nanj prim self uninitialized".split()
)
_DUNDER = re.compile(r"__.*__")


@dataclass(frozen=True)
class Names:
    """The places of a model's parts in the module made of it.

    Attributes:
        parameters: for each initializer that the graph reads, its key in the module's ``state_dict``.
        inputs: for each input, the argument of ``forward``.
        outputs: the outputs, in the order in which ``forward`` returns them.
        custom_operators: the operators that torch itself lacks, without which the module does not load.
    """

    parameters: dict[str, str]
    inputs: dict[str, str]
    outputs: list[str]
    custom_operators: list[str]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def names_of(module: torch.nn.Module) -> Names:
    """Reads the names of a module that `to_torchscript` or `to_module` made, also after it was saved and loaded."""
    record: Any = getattr(module, "onnx_names", None)
    if not isinstance(record, str):
        raise TypeError("the module was not made by onnx_torch")
    return Names(**json.loads(record))


def torch_names(names: Iterable[str], *, arguments: bool = False) -> dict[str, str]:
    """Makes names for PyTorch, all different, by ONNX name; most are the same.

    A parameter's name is split at its dots into the names of nested modules. What TorchScript cannot save changes:

    - in a part, each quote, backslash, control or non-ASCII character becomes ``_``, and so does an empty part;
    - in an argument, so does each character that no identifier holds, with a ``_`` in front of a leading digit;
    - a keyword, a word of TorchScript, a bare ``_`` or the name of an attribute or method of modules gets a ``_``
      at its end;
    - so does, until it is free, a name that another one has taken: of ``a`` and ``a.b`` it is ``a``, of two names that
      become equal it is the one that changes anyway, or else the later one.

    >>> torch_names(["layers.0.weight", "class", "a", "a.b"])
    {'layers.0.weight': 'layers.0.weight', 'class': 'class_', 'a': 'a_', 'a.b': 'a.b'}
    >>> torch_names(["x", "input:0", "0"], arguments=True)
    {'x': 'x', 'input:0': 'input_0', '0': '_0'}
    """
    paths = {name: _argument(name) if arguments else _parts(name) for name in names}
    leaves: set[tuple[str, ...]] = set()
    modules: set[tuple[str, ...]] = set()
    # Names that need no change come first, and longer paths before shorter ones.
    for name in sorted(paths, key=lambda name: (".".join(paths[name]) != name, -len(paths[name]))):
        path = paths[name]
        while clash := _clash(path, leaves, modules):
            path = (*path[: clash - 1], path[clash - 1] + "_", *path[clash:])
        leaves.add(path)
        modules.update(path[:i] for i in range(1, len(path)))
        paths[name] = path
    return {name: ".".join(path) for name, path in paths.items()}


def _argument(name: str) -> tuple[str, ...]:
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    return (_allowed("_" + cleaned if cleaned[0].isdigit() else cleaned, _ARGUMENTS),)


def _parts(name: str) -> tuple[str, ...]:
    return tuple(_allowed(re.sub(r"[^ -~]|[\"'\\]", "_", part) or "_", _ATTRIBUTES) for part in name.split("."))


def _allowed(word: str, reserved: frozenset[str]) -> str:
    return word + "_" if word in reserved or word == "_" or _DUNDER.fullmatch(word) else word


def _clash(path: tuple[str, ...], leaves: set[tuple[str, ...]], modules: set[tuple[str, ...]]) -> int:
    """Returns the length of the shortest part of the path that clashes with a name taken; 0 where none does."""
    for length in range(1, len(path)):
        if path[:length] in leaves:
            return length
    return len(path) if path in leaves or path in modules else 0
