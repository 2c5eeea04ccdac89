from __future__ import annotations

from .options import Model
from .terminal import domains_text


def info(model: Model) -> None:
    """Tell what a model is: inputs, outputs, opsets, operators, parameters, and what of it is not supported."""
    import onnx_torch

    found = onnx_torch.info(model)
    print(
        f"IR version {found.ir_version}, {', '.join(f'{domain} {version}' for domain, version in found.opsets.items())}"
    )
    if found.producer:
        print(f"made by {found.producer}")
    for title, values in (("Inputs", found.inputs), ("Outputs", found.outputs)):
        print(title)
        for value in values:
            print(f"  {value.name}: {value.type or 'of unknown type'}{' (has a default)' * value.has_default}")
    where = f", in {', '.join(found.external_files)}" if found.external_files else ""
    print(f"Parameters\n  {found.parameters:,} in {found.parameter_bytes:,} bytes{where}")
    print(f"Operators ({domains_text(found.domains)})")
    for name, count in found.operators.items():
        print(f"  {count} {name}")
    if found.functions:
        print(f"Functions\n  {', '.join(found.functions)}")
    if found.metadata:
        print("Metadata")
        for key, text in found.metadata.items():
            print(f"  {key}: {text}")
    print("Not supported" if found.unsupported else "All its operators are supported")
    for problem in found.unsupported:
        print(f"  {problem}")
