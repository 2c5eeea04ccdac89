"""Templates of the operators that onnxruntime and other projects add, a file for each family of src/ops/contrib."""

from .activation import ACTIVATION_ROWS
from .attention import ATTENTION_ROWS
from .block_quantization import BLOCK_QUANTIZATION_ROWS
from .cached_attention import CACHED_ATTENTION_ROWS
from .decoder_attention import DECODER_ATTENTION_ROWS
from .experts import EXPERTS_ROWS
from .extensions import EXTENSIONS_ROWS
from .layouts import LAYOUTS_ROWS
from .linear import LINEAR_ROWS
from .mmdeploy import MMDEPLOY_ROWS
from .multi_head_attention import MULTI_HEAD_ROWS
from .normalization import NORMALIZATION_ROWS
from .paged_attention import PAGED_ATTENTION_ROWS
from .qonnx import QONNX_ROWS
from .quantization import QUANTIZATION_ROWS
from .search import SEARCH_ROWS
from .sparse_attention import SPARSE_ROWS
from .sparse_indexers import SPARSE_INDEXER_ROWS
from .state_space import STATE_SPACE_ROWS
from .tensor import TENSOR_ROWS
from .text import TEXT_ROWS

CONTRIB_DOMAINS = {
    *("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"),
    *("ai.onnx.contrib", "finn.custom_op.general", "mmcv", "mmdeploy", "onnx.brevitas", "qonnx.custom_op.general"),
    *("TRT", "trt"),
}
CONTRIB_ROWS = [
    *ACTIVATION_ROWS,
    *ATTENTION_ROWS,
    *BLOCK_QUANTIZATION_ROWS,
    *CACHED_ATTENTION_ROWS,
    *DECODER_ATTENTION_ROWS,
    *EXPERTS_ROWS,
    *EXTENSIONS_ROWS,
    *LAYOUTS_ROWS,
    *LINEAR_ROWS,
    *MMDEPLOY_ROWS,
    *MULTI_HEAD_ROWS,
    *NORMALIZATION_ROWS,
    *PAGED_ATTENTION_ROWS,
    *QONNX_ROWS,
    *QUANTIZATION_ROWS,
    *SEARCH_ROWS,
    *SPARSE_ROWS,
    *SPARSE_INDEXER_ROWS,
    *STATE_SPACE_ROWS,
    *TENSOR_ROWS,
    *TEXT_ROWS,
]

OFFSETS_ARE_REFUSED = (
    "refused: the kernel of onnxruntime-extensions adds up the pieces' bytes, and gives no place in the text"
)

# The optional parts of a schema that are not tried both with and without, and why.
ONE_WAY_ONLY = {
    ("ai.onnx.contrib", "BertTokenizer"): {"offset_mapping": OFFSETS_ARE_REFUSED},
    ("ai.onnx.contrib", "CLIPTokenizer"): {"offset_mapping": OFFSETS_ARE_REFUSED},
    ("ai.onnx.contrib", "GPT2Tokenizer"): {"offset_mapping": OFFSETS_ARE_REFUSED},
    ("ai.onnx.contrib", "HfBertTokenizer"): {"offset_mapping": OFFSETS_ARE_REFUSED},
    ("ai.onnx.contrib", "RobertaTokenizer"): {"offset_mapping": OFFSETS_ARE_REFUSED},
    ("com.microsoft", "WhisperBeamSearch"): {
        "encoder": "Whisper has one",
        "cross_qk": "refused: which of a sequence's tokens it holds is only in onnxruntime's code for CUDA",
        "extra_decoding_ids": "refused: likewise",
    },
}
