"""The operators that onnxruntime adds to the standard: its own domains, and its own names in the standard's.

onnxruntime_schemas.json holds what its schemas say: names, versions, inputs, outputs, attributes, types and defaults,
and which of them it runs on a CPU. A maintainer writes it anew from the onnxruntime that is installed:

    python cmake/onnxruntime_schemas.py
"""

import json
from pathlib import Path

import onnx
from onnx import helper
from onnx.defs import OpSchema

FACTS = Path(__file__).with_suffix(".json")
OPTIONS = {"": "Single", "?": "Optional", "*": "Variadic", "+": "Variadic"}  # with +, each value has its own type


def facts():
    """Reads the table: the release it is of, and an entry for each version of an operator."""
    return json.loads(FACTS.read_text())


def schemas():
    """Gives the table as schemas of onnx, without those that onnxruntime took back."""
    return [_schema(entry) for entry in facts()["operators"] if not entry["deprecated"]]


def _schema(entry):
    return OpSchema(
        entry["name"],
        entry["domain"],
        entry["version"],
        inputs=[_parameter(text) for text in entry["inputs"]],
        outputs=[_parameter(text) for text in entry["outputs"]],
        type_constraints=[(name, allowed, "") for name, allowed in entry["types"].items()],
        attributes=[_attribute(name, attribute) for name, attribute in entry["attributes"].items()],
    )


def _parameter(text):
    mark = text[-1] if text[-1] in OPTIONS else ""
    name, type_name = text.removesuffix(mark).split(": ")
    option = OpSchema.FormalParameterOption.__members__[OPTIONS[mark]]
    return OpSchema.FormalParameter(name, type_name, param_option=option, is_homogeneous=mark != "+")


def _attribute(name, attribute):
    kind = OpSchema.AttrType.__members__[attribute["type"]]
    if "default" in attribute:
        number = onnx.AttributeProto.AttributeType.Value(attribute["type"])
        return OpSchema.Attribute(name, helper.make_attribute(name, attribute["default"], attr_type=number))
    return OpSchema.Attribute(name, kind, required=attribute["required"])


# --- Writing the table ---


def installed():
    """Makes the table of the onnxruntime that is installed."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    standard = {(s.domain, s.name, s.since_version) for s in onnx.defs.get_all_schemas_with_history()}
    on_cpu = {(k.domain, k.op_name) for k in native.get_all_opkernel_def() if k.provider == "CPUExecutionProvider"}
    found = [
        _entry(schema, on_cpu)
        for schema in native.get_all_operator_schema()
        if (schema.domain, schema.name, schema.since_version) not in standard
    ]
    found.sort(key=lambda entry: (entry["domain"], entry["name"], entry["version"]))
    return {"onnxruntime": onnxruntime.__version__, "operators": found}


def _entry(schema, on_cpu):
    return {
        "domain": schema.domain,
        "name": schema.name,
        "version": schema.since_version,
        "deprecated": schema.deprecated,
        "cpu": (schema.domain, schema.name) in on_cpu,
        "inputs": [_parameter_text(parameter) for parameter in schema.inputs],
        "outputs": [_parameter_text(parameter) for parameter in schema.outputs],
        "attributes": {name: _attribute_entry(a) for name, a in sorted(schema.attributes.items())},
        "types": {c.type_param_str: sorted(c.allowed_type_strs) for c in schema.type_constraints},
    }


def _parameter_text(parameter):
    kind = parameter.option.name
    mark = {"Single": "", "Optional": "?", "Variadic": "*" if parameter.isHomogeneous else "+"}[kind]
    return f"{parameter.name}: {parameter.typeStr}{mark}"


def _attribute_entry(attribute):
    entry = {"type": attribute.type.name, "required": attribute.required}
    default = onnx.AttributeProto.FromString(attribute._default_value)
    if default.type:
        value = helper.get_attribute_value(default)
        entry["default"] = value.decode() if isinstance(value, bytes) else value
    return entry


def _text(table):
    rows = ",\n".join("    " + json.dumps(entry) for entry in table["operators"])
    return f'{{\n  "onnxruntime": "{table["onnxruntime"]}",\n  "operators": [\n{rows}\n  ]\n}}\n'


if __name__ == "__main__":
    FACTS.write_text(_text(installed()))
