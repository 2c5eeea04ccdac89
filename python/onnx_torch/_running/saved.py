"""What tells a saved model from others, without what it takes to read one."""

from __future__ import annotations

import os

MARK = b"onnx_torch 1\n"  # at the end


def is_saved(model: bytes | str) -> bool:
    """Whether bytes, or a file, are what `save` wrote."""
    if isinstance(model, bytes):
        return model.endswith(MARK)
    if not os.path.isfile(model):  # opening a pipe would wait for a writer
        return False
    try:
        with open(model, "rb") as source:
            source.seek(-len(MARK), os.SEEK_END)
            return source.read() == MARK
    except OSError:
        return False
