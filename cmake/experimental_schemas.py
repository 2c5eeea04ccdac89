"""The experimental operators of onnx 1.2 to 1.4, which the installed package has no schemas for.

They never had another version than 1, and were taken back or promoted later. Models still hold them under any opset
version, so that they are found wherever no schema of the standard is. PyTorch's exporter writes ATen into a domain of
its own.
"""

from onnx import TensorProto, helper
from onnx.defs import OpSchema

FLOATS = ["tensor(float16)", "tensor(float)", "tensor(double)"]
INDICES = ["tensor(int32)", "tensor(int64)"]
FILLED = ["tensor(float)", "tensor(int32)", "tensor(int64)", "tensor(bool)"]
ANY = [
    f"tensor({name.lower()})"
    for name in "UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FLOAT16 FLOAT DOUBLE "
    "STRING BOOL COMPLEX64 COMPLEX128".split()
]

STRING = OpSchema.AttrType.STRING
FLOAT_LIST, INT_LIST = OpSchema.AttrType.FLOATS, OpSchema.AttrType.INTS
Option = OpSchema.FormalParameterOption


def _parameters(names):
    """Makes the parameters of "data:T"; "axes:Tind?" is optional, "input:T*" variadic."""
    options = {"?": Option.Optional, "*": Option.Variadic}
    for text in names.split():
        name, type_name = text.rstrip("?*").split(":")
        option = options.get(text[-1], Option.Single)
        yield OpSchema.FormalParameter(name, type_name, param_option=option, is_homogeneous=False)


def _attribute(name, value):
    """Makes an attribute of a default value, or of the type where there is none, alone or as (type, "required")."""
    if isinstance(value, tuple):
        return OpSchema.Attribute(name, value[0])
    if isinstance(value, OpSchema.AttrType):
        return OpSchema.Attribute(name, value, required=False)
    return OpSchema.Attribute(name, helper.make_attribute(name, value))


def schema(name, inputs, outputs, types, domain="", **attributes):
    return OpSchema(
        name,
        domain,
        1,
        inputs=list(_parameters(inputs)),
        outputs=list(_parameters(outputs)),
        type_constraints=[(parameter, allowed, "") for parameter, allowed in types.items()],
        attributes=[_attribute(*item) for item in attributes.items()],
    )


def _aten(domain):
    required = OpSchema.Attribute("operator", STRING)
    return OpSchema(
        "ATen",
        domain,
        1,
        inputs=list(_parameters("input:T*")),
        outputs=list(_parameters("output:U*")),
        type_constraints=[("T", ANY, ""), ("U", ANY, "")],
        attributes=[required, _attribute("overload_name", STRING)],
    )


# A default that onnx's schema lacks is that of Caffe2's operator (drop_states), or one that leaves the input alone.
SCHEMAS = [
    schema("Affine", "X:T", "Y:T", {"T": FLOATS}, alpha=1.0, beta=0.0),
    schema(
        "ConstantFill",
        "input:T1?",
        "output:T2",
        {"T1": FILLED, "T2": FILLED},
        value=0.0,
        dtype=TensorProto.FLOAT,
        shape=INT_LIST,
        extra_shape=INT_LIST,
        input_as_shape=0,
    ),
    schema("Crop", "input:T", "output:T", {"T": FLOATS}, border=[0, 0, 0, 0], scale=INT_LIST),
    schema("DynamicSlice", "data:T starts:Tind ends:Tind axes:Tind?", "output:T", {"T": ANY, "Tind": INDICES}),
    schema(
        "GRUUnit",
        "hidden_prev:T gates:T seq_lengths:L t:L",
        "hidden:T",
        {"T": FLOATS, "L": FLOATS + INDICES},
        drop_states=0,
    ),
    schema(
        "GivenTensorFill",
        "shape:T?",
        "X:T",
        {"T": FLOATS},
        values=FLOAT_LIST,
        shape=INT_LIST,
        extra_shape=INT_LIST,
        input_as_shape=0,
    ),
    schema("ImageScaler", "input:T", "output:T", {"T": FLOATS}, bias=FLOAT_LIST, scale=1.0),
    schema("MeanVarianceNormalization", "input:T", "output:T", {"T": FLOATS}, across_channels=0, normalize_variance=1),
    schema("ParametricSoftplus", "X:T", "Y:T", {"T": FLOATS}, alpha=1.0, beta=1.0),
    schema("Scale", "input:T", "output:T", {"T": FLOATS}, scale=1.0),
    schema("ScaledTanh", "input:T", "output:T", {"T": FLOATS}, alpha=1.0, beta=1.0),
    schema("ThresholdedRelu", "X:T", "Y:T", {"T": FLOATS}, alpha=1.0),
    *(_aten(domain) for domain in ("", "aten", "org.pytorch.aten")),
]

# The operators that take attributes which their schema does not name.
WITH_OPEN_ATTRIBUTES = {"ATen"}
