"""`ModelCompiler`, which writes models in the form of `PreparedModel.save`, which sessions load."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._enums import GraphOptimizationLevel, OrtCompileApiFlags
from ._errors import InvalidArgument
from ._options import SessionOptions
from ._session import prepared_for_cpu
from ._status import ignored, refused, works

__all__ = ["ModelCompiler"]

_WHOLE = "a compiled model holds all that it needs"


@works("compiles to the form of `PreparedModel.save`, for CPUs of this kind, which `InferenceSession` loads")
class ModelCompiler:
    """A model that is prepared ahead, so that sessions of it are made faster."""

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Callable[..., Any] | None = None,
    ) -> None:
        """Takes a model.

        Args:
            sess_options: options of the sessions to come.
            input_model_path_or_bytes: the model's file, or its serialized bytes.
            embed_compiled_data_into_model: accepted; a compiled model is one file in any case.
            external_initializers_file_path: accepted, and not used for the same reason.
            external_initializers_size_threshold: the same.
            flags: `OrtCompileApiFlags`; ERROR_IF_OUTPUT_FILE_EXISTS has a meaning here.
            graph_optimization_level: accepted; the model is optimized as `sess_options` says.
            get_initializer_location_func: accepted, and never called.
        """
        source = input_model_path_or_bytes
        self._source = source if isinstance(source, bytes) else os.fspath(source)
        self._options, self._flags = sess_options, flags

    def compile_to_file(self, output_model_path: str | None = None) -> None:
        """Writes the compiled model; without a name, into ``model_ctx.onnx`` beside ``model.onnx``."""
        target = output_model_path or self._beside()
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and os.path.exists(target):
            raise InvalidArgument(f"the compiled model cannot be written, as {target} exists")
        prepared_for_cpu(self._source, self._options).save(target)

    def _beside(self) -> str:
        if isinstance(self._source, bytes):
            raise InvalidArgument("the model is no file, so the compiled one needs a name: compile_to_file(path)")
        path = Path(self._source)
        return str(path.with_name(f"{path.stem}_ctx.onnx"))

    def compile_to_bytes(self) -> bytes:
        """Returns the compiled model as bytes."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "compiled.onnx"
            prepared_for_cpu(self._source, self._options).save(file)
            return file.read_bytes()

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """Passes the compiled model to a function."""
        write_function(self.compile_to_bytes())

    set_ep_context_data_write_func = refused(_WHOLE)
    clear_ep_context_data_write_func = ignored(_WHOLE)
