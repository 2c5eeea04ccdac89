"""The wheel's requirements, for scikit-build-core: torch is pinned to the minor release that the build uses."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

# From 0.29 on typer imports pydantic whenever a command is run, which takes a tenth of the time of `onnx-torch info`.
OTHERS = ["onnx>=1.23,<1.24", "numpy", "ml_dtypes", "rich>=14", "typer>=0.20,<0.29"]


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> list[str]:
    if field != "dependencies" or settings:
        raise RuntimeError(
            f"torch_requirement gives the dependencies and takes no settings, not {field}, {dict(settings)}"
        )
    major, minor = importlib.metadata.version("torch").split(".")[:2]
    return [f"torch=={major}.{minor}.*", *OTHERS]
