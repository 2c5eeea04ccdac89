"""Small models of many kinds, for faults while they are prepared and run.

An input whose name begins with "w" is an initializer.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

HEAD = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3, "com.microsoft": 1, "ai.onnx.contrib": 1, "own": 1]> '
# A model of sentencepiece in base64, of these pieces: the marks, "ab", "a", "b" and a space.
SENTENCES = (
    "Cg4KBTx1bms+FQAAAAAYAgoMCgM8cz4VAAAAABgDCg0KBDwvcz4VAAAAABgDCgsKAmFiFQAAgL8YAQoKCgFhFQAAAMAY"
    "AQoKCgFiFQAAAMAYAQoMCgPiloEVAAAAwBgBEgIYARoCEgA="
)
MODELS = {
    "chain": "(float[300] x) => (float[300] z) { y = Relu(x)  v = Sin(y)  u = Add(v, x)  z = Neg(u) }",
    "product": """(float[1, 300] x, float[300, 300] w) => (float[1, 300] z)
        { a = MatMul(x, w)  b = MatMul(a, w)  y = MatMul(b, w)  z = Softmax(y) }""",
    "loop": """(float[300] x) => (float[300] y) {
        three = Constant <value = int64 {3}> ()
        always = Constant <value = bool {1}> ()
        y = Loop (three, always, x) <body = each (int64 i, bool on, float[300] a) => (bool on2, float[300] b) {
            on2 = Identity (on)
            b = Sin (a)
        }>
    }""",
    "text": "(string[300] x) => (string[300] y) { y = StringConcat(x, x) }",
    "sentences": f"""(string[3] x, int64 w1, float w2, bool w3, bool w4, bool w5) => (int32[n] y, int64[4] z)
        {{ y, z = ai.onnx.contrib.SentencepieceTokenizer <model = "{SENTENCES}"> (x, w1, w2, w3, w4, w5) }}""",
    "convolution": """(float[1, 3, 16, 16] x, float[8, 3, 3, 3] w1, float[8] w2) => (float[1, 8, 1, 1] z)
        { a = Conv <pads = [1, 1, 1, 1]> (x, w1, w2)  b = Relu(a)
          c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)  z = GlobalAveragePool(c) }""",
    "deconvolution": """(float[1, 4, 8, 8] x, float[4, 3, 2, 2] w) => (float[1, 3, 16, 16] z)
        { y = ConvTranspose <strides = [2, 2]> (x, w)  z = Tanh(y) }""",
    "lstm": """(float[5, 1, 8] x, float[1, 64, 8] w1, float[1, 64, 16] w2) => (float[5, 1, 1, 16] y)
        { y = LSTM <hidden_size = 16> (x, w1, w2) }""",
    "gru": """(float[5, 1, 8] x, float[2, 48, 8] w1, float[2, 48, 16] w2) => (float[5, 2, 1, 16] y)
        { y = GRU <hidden_size = 16, direction = "bidirectional"> (x, w1, w2) }""",
    "attention": """(float[1, 2, 8, 16] q, float[1, 2, 16, 8] k, float[1, 2, 8, 16] v, float w)
        => (float[1, 2, 8, 16] z) { s = MatMul(q, k)  t = Mul(s, w)  p = Softmax(t)  z = MatMul(p, v) }""",
    "normalization": """(float[4, 64] x, float[64] w1, float[64] w2) => (float[4, 64] z)
        { y = LayerNormalization(x, w1, w2)  z = Gelu <approximate = "tanh"> (y) }""",
    "quantized": """(float[4, 64] x, float w1, uint8 w2, int8[64, 64] w3, float w4, int8 w5) => (float[4, 64] z)
        { q = QuantizeLinear(x, w1, w2)  a = DequantizeLinear(q, w1, w2)  b = DequantizeLinear(w3, w4, w5)
          z = MatMul(a, b) }""",
    "dynamically_quantized": """(float[4, 64] x, uint8[64, 64] w1, uint8 w2) => (int32[4, 64] z)
        { q, scale, zero = DynamicQuantizeLinear(x)  z = MatMulInteger(q, w1, zero, w2) }""",
    "bfloat16": """(float[4, 64] x, float[64, 64] w) => (float[4, 64] z)
        { a = Cast <to = 16> (x)  b = Cast <to = 16> (w)  y = MatMul(a, b)  z = Cast <to = 1> (y) }""",
    "float16": """(float16[4, 64] x, float16[64, 64] w) => (float16[4, 64] z) { y = MatMul(x, w)  z = Sigmoid(y) }""",
    "branch": """(bool on, float[300] x) => (float[300] z) {
        y = If (on) <then_branch = one () => (float[300] a) { a = Exp(x) }, else_branch = two () => (float[300] b)
            { b = Neg(x) }>
        z = Abs(y)
    }""",
    "scan": """(float[2] start, float[6, 2] x) => (float[2] last, float[6, 2] all) {
        last, all = Scan <num_scan_inputs = 1, body = each (float[2] sum, float[2] next)
            => (float[2] now, float[2] kept) { now = Add(sum, next)  kept = Identity(now) }> (start, x)
    }""",
    "sequence": """(float[6, 4] x) => (float[6, 4] z) {
        parts = SplitToSequence <axis = 0> (x)
        z = ConcatFromSequence <axis = 0> (parts)
    }""",
    "search": """(float[60] x, int64[1] w) => (float[5] a, int64[5] b, int64[1, n] c)
        { a, b = TopK(x, w)  c = NonZero(x) }""",
    "images": """(float[1, 2, 8, 8] x, float[1, 4, 4, 2] at, float[4] w) => (float[1, 2, 4, 4] y, float[1, 2, 16, 16] z)
        { y = GridSample(x, at)  z = Resize <mode = "cubic"> (x, , w) }""",
    "trees": """(float[4, 2] x) => (float[4, 1] y) {
        y = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2],
            nodes_featureids = [0, 0, 0], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values = [0.5, 0.0, 0.0],
            nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0], target_treeids = [0, 0],
            target_nodeids = [1, 2], target_ids = [0, 0], target_weights = [1.0, 2.0]> (x)
    }""",
    "function": """(float[300] x) => (float[300] z) { y = own.twice(x)  z = own.twice(y) }
        <domain: "own", opset_import: ["": 21]> twice (a) => (c) { b = Add(a, a)  c = Tanh(b) }""",
    "few_bits": """(float[2, 64] x, uint8[32, 2, 16] w1, float[64] w2) => (float[2, 32] y)
        { y = com.microsoft.MatMulNBits <K = 64, N = 32, bits = 4, block_size = 32> (x, w1, w2) }""",
}


def model_of(name):
    model = parser.parse_model(HEAD + name + " " + MODELS[name])
    inputs = list(model.graph.input)
    del model.graph.input[:]
    for value in inputs:
        if value.name.startswith("w"):
            model.graph.initializer.append(numpy_helper.from_array(array_for(value), value.name))
        else:
            model.graph.input.append(value)
    return model


def feeds_for(model):
    return {value.name: array_for(value) for value in model.graph.input}


def array_for(value):
    tensor = value.type.tensor_type
    shape = [dim.dim_value for dim in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    count = int(np.prod(shape))
    if tensor.elem_type == onnx.TensorProto.STRING:
        return np.array(["a", "b", "c"] * count, object)[:count].reshape(shape)
    numbers = np.arange(1, count + 1) % 7 + 1 if dtype.kind in "iu" else 0.5 + np.arange(count) % 5 / 4
    return numbers.astype(dtype).reshape(shape)
