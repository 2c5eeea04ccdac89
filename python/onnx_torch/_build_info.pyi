"""What this build is made of. CMake writes the module, from cmake/build_info.py.in."""

VERSION: str
TORCH: str
ONNX: str
COMPILER: str
BUILD_TYPE: str
LIBRARIES: dict[str, str]
