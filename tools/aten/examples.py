"""Arguments of operators that random ones seldom fit."""

from __future__ import annotations

from typing import Any

import torch

from .tensors import Tensor


def f(*shape: int, fill: str = "normal") -> Tensor:
    return Tensor(shape, torch.float32, fill)


def i(*shape: int, fill: str = "index") -> Tensor:
    return Tensor(shape, torch.int64, fill)


def b(*shape: int) -> Tensor:
    return Tensor(shape, torch.bool)


IMAGE, VOLUME, LINE = f(1, 4, 6, 6), f(1, 2, 4, 4, 4), f(1, 4, 8)
SQUARE = f(4, 4)

# The examples by the operator's name; each of its overloads that takes the arguments tries them.
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "adaptive_avg_pool1d": [{"self": LINE, "output_size": [2]}],
    "adaptive_avg_pool2d": [{"self": IMAGE, "output_size": [2, 2]}],
    "adaptive_avg_pool3d": [{"self": VOLUME, "output_size": [2, 2, 2]}],
    "_adaptive_avg_pool2d": [{"self": IMAGE, "output_size": [2, 2]}],
    "_adaptive_avg_pool3d": [{"self": VOLUME, "output_size": [2, 2, 2]}],
    "adaptive_max_pool1d": [{"self": LINE, "output_size": [2]}],
    "adaptive_max_pool2d": [{"self": IMAGE, "output_size": [2, 2]}],
    "adaptive_max_pool3d": [{"self": VOLUME, "output_size": [2, 2, 2]}],
    "addbmm": [{"self": f(3, 5), "batch1": f(2, 3, 4), "batch2": f(2, 4, 5)}],
    "addmv": [{"self": f(3), "mat": f(3, 4), "vec": f(4)}],
    "affine_grid_generator": [{"theta": f(1, 2, 3), "size": [1, 3, 4, 4], "align_corners": False}],
    "avg_pool1d": [{"self": LINE, "kernel_size": [2]}],
    "avg_pool2d": [{"self": IMAGE, "kernel_size": [2, 2], "stride": [1, 2], "padding": [1, 1], "ceil_mode": True}],
    "avg_pool3d": [{"self": VOLUME, "kernel_size": [2, 2, 2], "padding": [1, 1, 1], "divisor_override": 3}],
    "baddbmm": [{"self": f(2, 3, 5), "batch1": f(2, 3, 4), "batch2": f(2, 4, 5)}],
    "bilinear": [{"input1": f(3, 2), "input2": f(3, 4), "weight": f(5, 2, 4), "bias": f(5)}],
    "bincount": [{"self": i(6)}, {"self": i(6), "weights": f(6), "minlength": 5}],
    "bmm": [{"self": f(2, 3, 4), "mat2": f(2, 4, 5)}],
    "bucketize": [{"self": f(3, 4), "boundaries": f(5, fill="one")}],
    "cdist": [{"x1": f(2, 3, 4), "x2": f(2, 5, 4), "p": 2.0}, {"x1": f(3, 4), "x2": f(5, 4), "p": 1.0}],
    "channel_shuffle": [{"self": IMAGE, "groups": 2}],
    "cholesky_solve": [{"self": f(4, 2), "input2": SQUARE}],
    "col2im": [
        {
            **{"self": f(1, 16, 9), "output_size": [4, 4], "kernel_size": [2, 2], "dilation": [1, 1]},
            **{"padding": [0, 0], "stride": [1, 1]},
        }
    ],
    "conv1d": [{"input": LINE, "weight": f(3, 4, 3), "bias": f(3), "padding": [1]}],
    "conv2d": [
        {"input": IMAGE, "weight": f(3, 4, 3, 3), "bias": f(3), "stride": [2, 1], "padding": [1, 1]},
        {"input": IMAGE, "weight": f(4, 1, 3, 3), "groups": 4},
        {"input": IMAGE, "weight": f(2, 4, 3, 3), "padding": "same"},
    ],
    "conv3d": [{"input": VOLUME, "weight": f(3, 2, 2, 2, 2), "bias": f(3)}],
    "conv_tbc": [{"self": f(5, 2, 3), "weight": f(3, 3, 4), "bias": f(4), "pad": 1}],
    "cosine_embedding_loss": [{"input1": f(3, 4), "input2": f(3, 4), "target": i(3, fill="one")}],
    "cross_entropy_loss": [
        {"self": f(3, 4), "target": i(3), "weight": f(4, fill="one")},
        {"self": IMAGE, "target": i(1, 6, 6), "reduction": 0},
        {"self": f(3, 4), "target": f(3, 4, fill="small"), "label_smoothing": 0.1},
    ],
    "diagonal_scatter": [{"self": SQUARE, "src": f(4)}],
    "einsum": [
        {"equation": "ij,jk->ik", "tensors": [f(2, 3), f(3, 4)]},
        {"equation": "bij->bji", "tensors": [f(2, 3, 4)]},
    ],
    "embedding": [{"weight": f(5, 3), "indices": i(2, 4), "padding_idx": 1}],
    "fake_quantize_per_channel_affine": [
        {
            **{"self": f(3, 4), "scale": f(3, fill="one"), "zero_point": Tensor((3,), torch.int32, "zero"), "axis": 0},
            **{"quant_min": 0, "quant_max": 255},
        }
    ],
    "fake_quantize_per_tensor_affine": [
        {"self": f(3, 4), "scale": 0.1, "zero_point": 0, "quant_min": 0, "quant_max": 255}
    ],
    "fractional_max_pool2d": [
        {"self": IMAGE, "kernel_size": [2, 2], "output_size": [3, 3], "random_samples": f(1, 4, 2, fill="small")}
    ],
    "fractional_max_pool3d": [
        {"self": VOLUME, "kernel_size": [2, 2, 2], "output_size": [2, 2, 2], "random_samples": f(1, 2, 3, fill="small")}
    ],
    "gather": [{"self": f(3, 4), "dim": 1, "index": i(3, 2)}],
    "grid_sampler": [
        {"input": IMAGE, "grid": f(1, 3, 3, 2), "interpolation_mode": mode, "padding_mode": pad, "align_corners": False}
        for mode in (0, 1, 2)
        for pad in (0, 1, 2)
    ],
    "grid_sampler_2d": [
        {"input": IMAGE, "grid": f(1, 3, 3, 2), "interpolation_mode": mode, "padding_mode": 0, "align_corners": True}
        for mode in (0, 1, 2)
    ],
    "grid_sampler_3d": [
        {"input": VOLUME, "grid": f(1, 3, 3, 3, 3), "interpolation_mode": m, "padding_mode": 0, "align_corners": True}
        for m in (0, 1)
    ],
    "group_norm": [{"input": IMAGE, "num_groups": 2, "weight": f(4), "bias": f(4)}],
    "histogram": [{"self": f(6), "bins": 4}, {"self": f(6), "bins": f(5, fill="one")}],
    "im2col": [{"self": IMAGE, "kernel_size": [2, 2], "dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]}],
    "index": [{"self": f(3, 4), "indices": [i(2), i(2)]}, {"self": f(3, 4), "indices": [b(3, 4)]}],
    "index_add": [{"self": f(3, 4), "dim": 0, "index": i(2), "source": f(2, 4)}],
    "index_copy": [{"self": f(3, 4), "dim": 0, "index": i(2), "source": f(2, 4)}],
    "index_fill": [{"self": f(3, 4), "dim": 1, "index": i(2), "value": 1.0}],
    "index_put": [{"self": f(3, 4), "indices": [i(2), i(2)], "values": f(2), "accumulate": a} for a in (True, False)],
    "index_reduce": [{"self": f(3, 4), "dim": 0, "index": i(2), "source": f(2, 4), "reduce": "prod"}],
    "instance_norm": [
        {
            **{"input": IMAGE, "weight": f(4), "bias": f(4), "running_mean": None, "running_var": None},
            **{"use_input_stats": True, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False},
        }
    ],
    "istft": [{"self": Tensor((5, 6), torch.complex64), "n_fft": 8, "window": f(8, fill="one")}],
    "kthvalue": [{"self": f(3, 4), "k": 2, "dim": 1}],
    "layer_norm": [{"input": f(3, 4), "normalized_shape": [4], "weight": f(4), "bias": f(4)}],
    "mv": [{"self": f(3, 4), "vec": f(4)}],
    "narrow": [{"self": f(6), "dim": 0, "start": i(), "length": 2}],
    "native_layer_norm": [{"input": f(3, 4), "normalized_shape": [4], "weight": f(4), "bias": f(4), "eps": 1e-5}],
    "linalg_cholesky": [{"self": f(1, 1, fill="one")}],
    "linalg_householder_product": [{"input": f(4, 3), "tau": f(3)}],
    "linalg_ldl_solve": [{"LD": SQUARE, "pivots": Tensor((4,), torch.int32, "one"), "B": f(4, 2)}],
    "linalg_lu_solve": [{"LU": SQUARE, "pivots": Tensor((4,), torch.int32, "one"), "B": f(4, 2)}],
    "lu_solve": [{"self": f(4, 2), "LU_data": SQUARE, "LU_pivots": Tensor((4,), torch.int32, "one")}],
    "lu_unpack": [{"LU_data": SQUARE, "LU_pivots": Tensor((4,), torch.int32, "one")}],
    "masked_scatter": [{"self": f(3, 4), "mask": b(3, 4), "source": f(12)}],
    "max_pool1d": [{"self": LINE, "kernel_size": [2], "stride": [1]}],
    "max_pool1d_with_indices": [{"self": LINE, "kernel_size": [2], "stride": [1]}],
    "max_pool2d": [{"self": IMAGE, "kernel_size": [2, 2], "padding": [1, 1], "ceil_mode": True}],
    "max_pool2d_with_indices": [{"self": IMAGE, "kernel_size": [2, 2], "dilation": [2, 1]}],
    "max_pool3d": [{"self": VOLUME, "kernel_size": [2, 2, 2]}],
    "max_pool3d_with_indices": [{"self": VOLUME, "kernel_size": [2, 2, 2]}],
    "max_unpool2d": [{"self": f(1, 2, 2, 2), "indices": i(1, 2, 2, 2), "output_size": [4, 4]}],
    "max_unpool3d": [
        {
            **{"self": f(1, 2, 2, 2, 2), "indices": i(1, 2, 2, 2, 2), "output_size": [4, 4, 4]},
            **{"stride": [2, 2, 2], "padding": [0, 0, 0]},
        }
    ],
    "multi_margin_loss": [{"self": f(3, 4), "target": i(3)}],
    "multilabel_margin_loss": [{"self": f(3, 4), "target": i(3, 4)}],
    "multilabel_margin_loss_forward": [{"self": f(3, 4), "target": i(3, 4), "reduction": 1}],
    "multinomial": [{"self": f(3, 4, fill="small"), "num_samples": 2}],
    "nll_loss": [{"self": f(3, 4), "target": i(3), "weight": f(4)}],
    "nll_loss_forward": [{"self": f(3, 4), "target": i(3), "weight": f(4), "reduction": 0, "ignore_index": -100}],
    "nll_loss2d": [{"self": IMAGE, "target": i(1, 6, 6), "weight": f(4)}],
    "nll_loss2d_forward": [{"self": IMAGE, "target": i(1, 6, 6), "weight": None, "reduction": 1, "ignore_index": -100}],
    "nll_loss_nd": [{"self": IMAGE, "target": i(1, 6, 6), "weight": f(4)}],
    "one_hot": [{"self": i(4), "num_classes": 5}],
    "orgqr": [{"self": f(4, 3), "input2": f(3)}],
    "ormqr": [{"self": f(4, 3), "input2": f(3), "input3": f(4, 2)}],
    "pixel_shuffle": [{"self": IMAGE, "upscale_factor": 2}],
    "pixel_unshuffle": [{"self": IMAGE, "downscale_factor": 2}],
    "prelu": [{"self": IMAGE, "weight": f(4)}],
    "put": [{"self": f(3, 4), "index": i(3), "source": f(3)}],
    "reflection_pad1d": [{"self": LINE, "padding": [1, 2]}],
    "reflection_pad2d": [{"self": IMAGE, "padding": [1, 2, 2, 1]}],
    "reflection_pad3d": [{"self": VOLUME, "padding": [1, 1, 1, 1, 1, 1]}],
    "replication_pad1d": [{"self": LINE, "padding": [1, -2]}],
    "replication_pad2d": [{"self": IMAGE, "padding": [1, 2, -2, 1]}],
    "replication_pad3d": [{"self": VOLUME, "padding": [1, 1, 1, -1, 1, 1]}],
    "renorm": [{"self": f(3, 4), "p": 2.0, "dim": 0, "maxnorm": 1.0}],
    "repeat_interleave": [{"self": f(3, 4), "repeats": i(3), "dim": 0}, {"repeats": i(3)}],
    "rms_norm": [{"input": f(3, 4), "normalized_shape": [4], "weight": f(4)}],
    "scaled_dot_product_attention": [
        {"query": f(1, 2, 5, 4), "key": f(1, 2, 6, 4), "value": f(1, 2, 6, 4), "attn_mask": mask}
        for mask in (None, f(5, 6), b(5, 6))
    ],
    "scatter": [
        {"self": f(3, 4), "dim": 1, "index": i(3, 2), "src": f(3, 2)},
        {"self": f(3, 4), "dim": 1, "index": i(3, 2), "src": f(3, 2), "reduce": "add"},
        {"self": f(3, 4), "dim": 1, "index": i(3, 2), "value": 2.0, "reduce": "multiply"},
    ],
    "scatter_add": [{"self": f(3, 4), "dim": 1, "index": i(3, 2), "src": f(3, 2)}],
    "scatter_reduce": [{"self": f(3, 4), "dim": 1, "index": i(3, 2), "src": f(3, 2), "reduce": "amax"}],
    "searchsorted": [
        {"sorted_sequence": f(3, 4), "self": f(3, 2)},
        {"sorted_sequence": f(4), "self": f(3), "sorter": i(4)},
    ],
    "select_scatter": [{"self": f(3, 4), "src": f(4), "dim": 0, "index": 1}],
    "segment_reduce": [{"data": f(6), "reduce": "sum", "lengths": i(3, fill="one"), "unsafe": True}],
    "stft": [{"self": f(2, 40), "n_fft": 8, "hop_length": 4, "window": f(8, fill="one"), "return_complex": True}],
    "take": [{"self": f(3, 4), "index": i(5)}],
    "take_along_dim": [{"self": f(3, 4), "indices": i(3, 2), "dim": 1}],
    "tensordot": [{"self": f(2, 3), "other": f(3, 4), "dims_self": [1], "dims_other": [0]}],
    "triangular_solve": [{"self": f(4, 2), "A": SQUARE}],
    "unflatten": [{"self": f(2, 6), "dim": 1, "sizes": [2, 3]}],
    "unfold": [{"self": f(3, 8), "dimension": 1, "size": 3, "step": 2}],
    "upsample_bicubic2d": [{"input": IMAGE, "output_size": [9, 3], "align_corners": False, "scale_factors": None}],
    "upsample_bilinear2d": [{"input": IMAGE, "output_size": [9, 3], "align_corners": True, "scale_factors": None}],
    "upsample_linear1d": [{"input": LINE, "output_size": [5], "align_corners": True, "scale_factors": None}],
    "upsample_nearest1d": [{"input": LINE, "output_size": [5], "scale_factors": None}],
    "upsample_nearest2d": [{"input": IMAGE, "output_size": None, "scale_factors": [1.5, 2.0]}],
    "upsample_nearest3d": [{"input": VOLUME, "output_size": [5, 3, 2], "scale_factors": None}],
    "upsample_trilinear3d": [
        {"input": VOLUME, "output_size": [5, 3, 2], "align_corners": False, "scale_factors": None}
    ],
    "view": [{"self": f(3, 4), "size": [2, -1]}, {"self": f(3, 4), "dtype": 4}],
    "view_as_complex": [{"self": f(3, 2)}],
}


def examples(name: str, arguments: set[str]) -> list[dict[str, Any]]:
    """Gives the examples of an operator whose argument names its overload has."""
    return [example for example in EXAMPLES.get(name, []) if set(example) <= arguments]
