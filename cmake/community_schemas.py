"""The operators that other projects' exporters write into domains of their own.

Their facts are from the projects' own documents. Each has one version, under whatever version the domain is imported.

- mmdeploy, mmcv: detection of OpenMMLab
- "", trt, TRT: plugins of TensorRT
- qonnx.custom_op.general: quantization of QONNX; finn.custom_op.general and onnx.brevitas are its older names
- ai.onnx.contrib: text of onnxruntime-extensions
"""

from experimental_schemas import FLOATS, STRING, schema
from onnx.defs import OpSchema

FLOAT, INT, FLOAT_LIST = OpSchema.AttrType.FLOAT, OpSchema.AttrType.INT, OpSchema.AttrType.FLOATS
REQUIRED_INT, REQUIRED_FLOAT, REQUIRED_STRING = ((kind, "required") for kind in (INT, FLOAT, STRING))

OPENMMLAB = ["mmdeploy", "mmcv"]
TENSORRT = ["", "trt", "TRT"]
QONNX = ["qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"]
TEXT = {"T": ["tensor(string)"]}
PIECES = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "suffix_indicator": "##",
}


def in_each(domains, name, inputs, outputs, types, **attributes):
    return [schema(name, inputs, outputs, types, domain=domain, **attributes) for domain in domains]


def deformable(name, inputs, **more):
    convolution = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1, "deform_groups": 1}
    return in_each(OPENMMLAB, name, inputs, "output:T", {"T": FLOATS}, **convolution, **more)


def roi_align(name):
    size = {"output_height": 1, "output_width": 1}
    sampling = {"spatial_scale": 1.0, "sampling_ratio": 0, "mode": "avg", "aligned": 1}
    return in_each(OPENMMLAB, name, "input:T rois:T", "output:T", {"T": FLOATS}, **size, **sampling)


def batched_nms(name):
    """Gives the schemas of batched NMS as TensorRT's plugin has it."""
    return in_each(
        TENSORRT,
        name,
        "boxes:T scores:T",
        "num_detections:tensor(int32) nmsed_boxes:T nmsed_scores:T nmsed_classes:T",
        {"T": FLOATS[:2]},
        shareLocation=1,
        backgroundLabelId=-1,
        numClasses=REQUIRED_INT,
        topK=REQUIRED_INT,
        keepTopK=REQUIRED_INT,
        scoreThreshold=REQUIRED_FLOAT,
        iouThreshold=REQUIRED_FLOAT,
        isNormalized=1,
        clipBoxes=1,
        scoreBits=16,
        caffeSemantics=1,
        plugin_version="1",
        plugin_namespace="",
    )


def text(name, inputs, outputs, types=TEXT, **attributes):
    return schema(name, inputs, outputs, types, domain="ai.onnx.contrib", **attributes)


def bert(name, outputs):
    return text(
        name,
        "text:T",
        outputs,
        vocab_file=REQUIRED_STRING,
        do_lower_case=1,
        do_basic_tokenize=1,
        tokenize_chinese_chars=1,
        strip_accents=0,
        **PIECES,
        max_length=-1,
        truncation_strategy_name="longest_first",
    )


SCHEMAS = [
    *deformable("MMCVDeformConv2d", "input:T offset:T weight:T", bias=0, im2col_step=32),
    *deformable("MMCVModulatedDeformConv2d", "input:T offset:T mask:T weight:T bias:T?"),
    *roi_align("MMCVRoIAlign"),
    *roi_align("MMCVRoiAlign"),
    *in_each(
        OPENMMLAB,
        "MMCVMultiLevelRoiAlign",
        "rois:T feats:T*",
        "output:T",
        {"T": FLOATS},
        output_height=REQUIRED_INT,
        output_width=REQUIRED_INT,
        featmap_strides=(FLOAT_LIST, "required"),
        pool_mode=1,
        sampling_ratio=0,
        roi_scale_factor=1.0,
        finest_scale=56,
        aligned=1,
    ),
    *in_each(
        OPENMMLAB,
        "grid_sampler",
        "input:T grid:T",
        "output:T",
        {"T": FLOATS},
        interpolation_mode=0,
        padding_mode=0,
        align_corners=0,
    ),
    *in_each(
        OPENMMLAB,
        "NonMaxSuppression",
        "boxes:T scores:T",
        "indices:tensor(int64)",
        {"T": FLOATS[:2]},
        iou_threshold=0.5,
        score_threshold=float("-inf"),
        max_output_boxes_per_class=0,
        center_point_box=0,
        offset=0,
    ),
    *in_each(
        OPENMMLAB,
        "MMCVInstanceNormalization",
        "input:T scale:T B:T",
        "output:T",
        {"T": FLOATS},
        epsilon=1e-5,
    ),
    *in_each(
        OPENMMLAB,
        "TRTBatchedNMS",
        "boxes:T scores:T",
        "dets:T labels:tensor(int32) indices:tensor(int32)?",
        {"T": FLOATS[:2]},
        background_label_id=-1,
        num_classes=REQUIRED_INT,
        topk=REQUIRED_INT,
        keep_topk=REQUIRED_INT,
        score_threshold=REQUIRED_FLOAT,
        iou_threshold=REQUIRED_FLOAT,
        is_normalized=1,
        clip_boxes=1,
        return_index=0,
    ),
    *batched_nms("BatchedNMS_TRT"),
    *batched_nms("BatchedNMSDynamic_TRT"),
    # The standard's domain is left out, as onnxruntime has the operator there.
    *in_each(
        TENSORRT[1:],
        "EfficientNMS_TRT",
        "boxes:T scores:T anchors:T?",
        "num_detections:tensor(int32) detection_boxes:T detection_scores:T detection_classes:tensor(int32)",
        {"T": FLOATS[:2]},
        background_class=REQUIRED_INT,
        box_coding=REQUIRED_INT,
        iou_threshold=REQUIRED_FLOAT,
        max_output_boxes=REQUIRED_INT,
        plugin_version=REQUIRED_STRING,
        score_activation=REQUIRED_INT,
        score_threshold=REQUIRED_FLOAT,
    ),
    *in_each(
        QONNX,
        "Quant",
        "X:T scale:T zeropt:T bitwidth:T",
        "Y:T",
        {"T": FLOATS},
        signed=1,
        narrow=0,
        rounding_mode="ROUND",
    ),
    *in_each(QONNX, "BipolarQuant", "X:T scale:T", "Y:T", {"T": FLOATS}),
    # The operator takes five inputs as version 1 had it, and six as version 2.
    *in_each(
        QONNX,
        "Trunc",
        "X:T scale:T zeropt:T in_bitwidth:T out_scale_or_bitwidth:T out_bitwidth:T?",
        "Y:T",
        {"T": FLOATS},
        signed=1,
        narrow=0,
        rounding_mode="FLOOR",
    ),
    *in_each(
        QONNX,
        "FloatQuant",
        "X:T scale:T exponent_bitwidth:T mantissa_bitwidth:T exponent_bias:T max_val:T",
        "Y:T",
        {"T": ["tensor(float)"]},
        has_infinity=0,
        has_nan=0,
        has_subnormal=1,
        saturation=1,
        rounding_mode="ROUND",
    ),
    *in_each(
        QONNX,
        "MultiThreshold",
        "v:T thresholds:T",
        "output:T",
        {"T": ["tensor(float)"]},
        out_dtype=REQUIRED_STRING,
        out_scale=1.0,
        out_bias=0.0,
        data_layout="NCHW",
    ),
    bert(
        "BertTokenizer",
        "input_ids:tensor(int64) token_type_ids:tensor(int64) attention_mask:tensor(int64) "
        "offset_mapping:tensor(int64)?",
    ),
    bert(
        "HfBertTokenizer",
        "input_ids:tensor(int64) attention_mask:tensor(int64) token_type_ids:tensor(int64)? "
        "offset_mapping:tensor(int64)?",
    ),
    text(
        "BertTokenizerDecoder",
        "token_ids:tensor(int64) positions:tensor(int64)",
        "str:T",
        vocab_file=REQUIRED_STRING,
        **PIECES,
        use_indices=0,
        skip_special_tokens=0,
        clean_up_tokenization_spaces=1,
    ),
    text(
        "BpeDecoder",
        "ids:tensor(int64)",
        "str:T",
        id_vocab=REQUIRED_STRING,
        byte_decoder=REQUIRED_STRING,
        added_tokens="",
        all_special_ids="",
        en_normalization=0,
        skip_special_tokens=0,
        whitespace_token=0,
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|endoftext|>",
    ),
    *[
        text(
            name,
            "input_text:T",
            "input_ids:tensor(int64) attention_mask:tensor(int64)? offset_mapping:tensor(int64)?",
            vocab=REQUIRED_STRING,
            merges=REQUIRED_STRING,
            padding_length=-1,
            added_token="",
            model_name="",
        )
        for name in ("CLIPTokenizer", "GPT2Tokenizer", "RobertaTokenizer")
    ],
    text(
        "SentencepieceTokenizer",
        "inputs:T nbest_size:tensor(int64) alpha:tensor(float) add_bos:tensor(bool) add_eos:tensor(bool) "
        "reverse:tensor(bool) fairseq:tensor(bool)?",
        "tokens:tensor(int32) instance_indices:tensor(int64) token_indices:tensor(int32)?",
        model=REQUIRED_STRING,
    ),
    text("SentencepieceDecoder", "ids:tensor(int64) fairseq:tensor(bool)?", "str:T", model=REQUIRED_STRING),
    text(
        "StftNorm",
        "pcm_wave:T n_fft:tensor(int64) hop_length:tensor(int64) window:T frame_size:tensor(int64)",
        "stft_norm:T",
        {"T": FLOATS[1:2]},
        onesided=1,
    ),
    text("StringConcat", "left:T right:T", "output:T"),
    text("StringEqual", "x:T y:T", "z:tensor(bool)"),
    text("StringJoin", "input_X:T input_sep:T input_axis:tensor(int64)", "out:T"),
    text("StringLength", "data:T", "output:tensor(int64)"),
    text("StringLower", "input:T", "output:T"),
    text("StringMapping", "input:T", "output:T", map=REQUIRED_STRING),
    text("StringRegexReplace", "text:T pattern:T rewrite:T", "output:T", global_replace=1),
    text(
        "StringRegexSplitWithOffsets",
        "text:T delim_regex_pattern:T keep_delim_regex_pattern:T",
        "words:T begins:tensor(int64) ends:tensor(int64) row_indices:tensor(int64)",
    ),
    text(
        "StringSplit",
        "input_X:T sep:T skip_empty:tensor(bool)",
        "indices:tensor(int64) values:T dense_shape:tensor(int64)",
    ),
    text("StringStrip", "input:T", "output:T"),
    text("StringToVector", "text:T", "token_ids:tensor(int64)", map=REQUIRED_STRING, unk=REQUIRED_STRING),
    text("StringUpper", "input:T", "output:T"),
    text("VectorToString", "token_ids:tensor(int64)", "text:T", map=REQUIRED_STRING, unk=REQUIRED_STRING),
    text("MaskedFill", "value:T mask:tensor(bool)", "output:T"),
    text("Inverse", "input:F", "output:F", {"F": ["tensor(float)"]}),
    text("NegPos", "input:F", "out0:F out1:F", {"F": ["tensor(float)"]}),
    text("SegmentExtraction", "input:I", "position:I value:I", {"I": ["tensor(int64)"]}),
    text("SegmentSum", "data:F segment_ids:tensor(int64)", "output:F", {"F": ["tensor(float)"]}),
    text("ImageDecoder", "encoded:U", "decoded:U", {"U": ["tensor(uint8)"]}),
    text("DecodeImage", "encoded:U", "decoded:U", {"U": ["tensor(uint8)"]}, color_space="bgr"),
]
