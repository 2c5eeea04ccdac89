"""The native module of what takes Python's torch; it is for `_C`, which loads it when it is first needed."""

from typing import Any

functions: Any
