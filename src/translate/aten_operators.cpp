#include "translate/aten_operators.h"

#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>
#include <string>

#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

// clang-format off
constexpr auto kChecked = std::to_array<std::string_view>({
    "Bool", "Float", "FloatImplicit", "Int", "IntImplicit", "ScalarImplicit", "__and__", "__lshift__", "__or__",
    "__rshift__", "__xor__", "_aminmax", "_cast_Byte", "_cast_Char", "_cast_Double", "_cast_Float", "_cast_Half",
    "_cast_Int", "_cast_Long", "_cast_Short", "_cdist_forward", "_conj", "_dim_arange", "_euclidean_dist",
    "_is_all_true", "_is_any_true", "_log_softmax", "_logcumsumexp", "_prelu_kernel", "_reshape_from_tensor",
    "_safe_softmax", "_sample_dirichlet", "_scaled_dot_product_attention_math", "_shape_as_tensor", "_softmax",
    "_standard_gamma", "_to_copy", "_trilinear", "_unique", "_unique2", "abs", "absolute", "acos", "acosh", "add",
    "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "adjoint", "affine_grid_generator", "alias", "all",
    "allclose", "alpha_dropout", "amax", "amin", "aminmax", "angle", "any", "arange", "arccos", "arccosh", "arcsin",
    "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "argwhere", "asin", "asinh", "atan",
    "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "baddbmm",
    "bartlett_window", "bernoulli", "bilinear", "binary_cross_entropy_with_logits", "bincount", "bitwise_and",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman_window",
    "block_diag", "bmm", "broadcast_tensors", "broadcast_to", "bucketize", "cartesian_prod", "cat", "cdist", "ceil",
    "celu", "chain_matmul", "chalf", "channel_shuffle", "cholesky_inverse", "cholesky_solve", "chunk", "clamp",
    "clamp_max", "clamp_min", "clip", "clone", "col2im", "column_stack", "complex", "concat", "concatenate", "conj",
    "conj_physical", "constant_pad_nd", "contiguous", "copysign", "corrcoef", "cos", "cosh", "cosine_embedding_loss",
    "cosine_similarity", "count_nonzero", "cross", "cross_entropy_loss", "cummax", "cummin", "cumprod", "cumsum",
    "cumulative_trapezoid", "deg2rad", "det", "detach", "diag", "diag_embed", "diagflat", "diagonal",
    "diagonal_scatter", "diff", "digamma", "dim", "dist", "div.Scalar", "div.Tensor", "divide.Scalar", "divide.Tensor",
    "dot", "dropout", "dsplit", "dstack", "einsum", "elu", "embedding", "eq", "equal", "erf", "erfc", "erfinv", "exp",
    "exp2", "expand", "expand_as", "expand_copy", "expm1", "eye", "fake_quantize_per_channel_affine",
    "fake_quantize_per_tensor_affine", "feature_alpha_dropout", "feature_dropout", "fft_fft", "fft_fft2", "fft_fftfreq",
    "fft_fftn", "fft_fftshift", "fft_hfft", "fft_hfft2", "fft_hfftn", "fft_ifft", "fft_ifft2", "fft_ifftn",
    "fft_ifftshift", "fft_ihfft", "fft_ihfft2", "fft_ihfftn", "fft_irfft", "fft_irfft2", "fft_irfftn", "fft_rfft",
    "fft_rfft2", "fft_rfftfreq", "fft_rfftn", "fill", "fix", "flatten", "flip", "fliplr", "flipud", "float_power",
    "floor", "fmax", "fmin", "fmod", "frac", "fractional_max_pool2d", "fractional_max_pool3d", "frexp",
    "frobenius_norm", "full", "full_like", "gather", "ge", "gelu", "geqrf", "ger", "glu", "gradient", "greater",
    "greater_equal", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "group_norm", "gt", "hamming_window",
    "hann_window", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "heaviside", "hinge_embedding_loss", "histc",
    "histogram", "hsplit", "hstack", "huber_loss", "hypot", "i0", "igamma", "igammac", "im2col", "imag", "index",
    "index_add", "index_copy", "index_fill", "index_put", "index_reduce", "index_select", "inner", "inverse",
    "is_complex", "is_conj", "is_floating_point", "is_nonzero", "is_signed", "isclose", "isfinite", "isin", "isinf",
    "isnan", "isneginf", "isposinf", "isreal", "istft", "item", "kaiser_window", "kl_div", "kron", "kthvalue",
    "l1_loss", "layer_norm", "ldexp", "le", "leaky_relu", "lerp", "less", "less_equal", "lgamma", "linalg_cholesky",
    "linalg_cholesky_ex", "linalg_cond", "linalg_cross", "linalg_det", "linalg_diagonal", "linalg_eigh",
    "linalg_eigvalsh", "linalg_householder_product", "linalg_inv", "linalg_inv_ex", "linalg_ldl_factor",
    "linalg_ldl_factor_ex", "linalg_lstsq", "linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_matmul",
    "linalg_matrix_exp", "linalg_matrix_norm", "linalg_matrix_rank", "linalg_matrix_sqrth", "linalg_multi_dot",
    "linalg_norm", "linalg_pinv", "linalg_polar", "linalg_qr", "linalg_slogdet", "linalg_solve", "linalg_solve_ex",
    "linalg_solve_triangular", "linalg_svd", "linalg_svdvals", "linalg_tensorinv", "linalg_tensorsolve",
    "linalg_vander", "linalg_vecdot", "linalg_vector_norm", "linear", "linspace", "log", "log10", "log1p", "log2",
    "log_sigmoid", "log_sigmoid_forward", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp", "logdet",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "logspace", "logsumexp", "lt", "lu_unpack",
    "mH", "mT", "margin_ranking_loss", "masked_fill", "masked_scatter", "masked_select", "matmul", "matrix_H",
    "matrix_exp", "max", "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices",
    "max_unpool2d", "max_unpool3d", "maximum", "mean", "meshgrid", "min", "minimum", "mish", "mm", "mode", "moveaxis",
    "movedim", "mse_loss", "msort", "mul", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_margin_loss_forward", "multinomial", "multiply", "mv", "mvlgamma", "nan_to_num", "nanmean",
    "nanquantile", "nansum", "narrow", "native_dropout", "native_layer_norm", "ne", "neg",
    "negative", "new_full", "new_ones", "new_zeros", "nextafter", "nll_loss", "nll_loss2d", "nll_loss2d_forward",
    "nll_loss_forward", "nll_loss_nd", "nonzero", "nonzero_numpy", "nonzero_static", "norm", "normal", "not_equal",
    "nuclear_norm", "numel", "numpy_T", "one_hot", "ones", "ones_like", "orgqr", "outer", "pad", "pad_sequence",
    "pairwise_distance", "pdist", "permute", "pinverse", "pixel_shuffle", "pixel_unshuffle", "poisson",
    "poisson_nll_loss", "polar", "polygamma", "positive", "pow", "prelu", "prod", "put", "quantile", "rad2deg", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "ravel", "real", "reciprocal",
    "reflection_pad2d", "reflection_pad3d", "relu", "relu6", "remainder", "renorm", "repeat", "repeat_interleave",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "reshape", "reshape_as", "resolve_conj",
    "resolve_neg", "result_type", "rms_norm", "roll", "rot90", "round", "row_stack", "rrelu", "rsqrt", "rsub",
    "scalar_tensor", "scatter", "scatter_add", "scatter_reduce", "searchsorted", "select", "select_scatter", "selu",
    "sgn", "sigmoid", "sign", "signbit", "silu", "sin", "sinc", "sinh", "size", "slice", "slice_scatter", "slogdet",
    "smooth_l1_loss", "softmax", "softplus", "softshrink", "sort", "special_airy_ai", "special_bessel_j0",
    "special_bessel_j1", "special_bessel_y0", "special_bessel_y1", "special_digamma", "special_entr", "special_erf",
    "special_erfc", "special_erfcx", "special_erfinv", "special_exp2", "special_expit", "special_expm1",
    "special_gammainc", "special_gammaincc", "special_gammaln", "special_i0", "special_i0e", "special_i1",
    "special_i1e", "special_log1p", "special_log_ndtr", "special_log_softmax", "special_logit", "special_logsumexp",
    "special_modified_bessel_i0", "special_modified_bessel_i1", "special_modified_bessel_k0",
    "special_modified_bessel_k1", "special_multigammaln", "special_ndtr", "special_ndtri", "special_polygamma",
    "special_psi", "special_round", "special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1",
    "special_sinc", "special_softmax", "special_spherical_bessel_j0", "special_xlog1py", "special_xlogy",
    "special_zeta", "split", "split_with_sizes", "sqrt", "square", "squeeze", "stack", "std", "std_mean", "stft", "sub",
    "subtract", "sum", "sum_to_size", "svd", "swapaxes", "swapdims", "t", "take", "take_along_dim", "tan", "tanh",
    "tensor_split", "tensordot", "threshold", "tile", "to.device", "to.dtype", "to.dtype_layout", "to.other",
    "to_dense", "topk", "trace", "transpose", "trapezoid", "trapz", "triangular_solve", "tril", "tril_indices",
    "triplet_margin_loss", "triu", "triu_indices", "true_divide", "trunc", "type_as", "unbind", "unflatten", "unfold",
    "unique_consecutive", "unique_dim", "unique_dim_consecutive", "unsqueeze", "upsample_bicubic2d",
    "upsample_bilinear2d", "upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "upsample_trilinear3d", "vander", "var", "var_mean", "vdot", "view", "view_as", "view_as_complex", "view_as_real",
    "vsplit", "vstack", "where", "xlogy", "zero", "zeros", "zeros_like",
});
// clang-format on
static_assert(std::ranges::is_sorted(kChecked));

// The checked operators that torch 2.11 lets end the process, compute without end, or give memory that nobody has
// written, and torch 2.15 does not.
constexpr auto kCheckedLately =
    std::to_array<std::string_view>({"_scaled_dot_product_attention_math", "col2im", "im2col", "linalg_lstsq",
                                     "lu_unpack", "reflection_pad3d", "repeat_interleave.Tensor"});
static_assert(std::ranges::is_sorted(kCheckedLately));
constexpr bool kIsLate = TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15);

bool names(std::span<const std::string_view> operators, std::string_view name, std::string_view overload) {
  const std::string full = std::string(name) + "." + std::string(overload);
  return std::ranges::binary_search(operators, name) || std::ranges::binary_search(operators, std::string_view(full));
}

}  // namespace

std::span<const std::string_view> checked_operators() { return kChecked; }

bool is_checked_operator(std::string_view name, std::string_view overload) {
  name.remove_prefix(std::string_view("aten::").size());
  return names(kChecked, name, overload) && (kIsLate || !names(kCheckedLately, name, overload));
}

bool allows_any_aten(const std::string& allow_aten) {
  if (allow_aten == "all") return true;
  if (allow_aten == "checked") return false;
  throw InputError("allow_aten must be \"checked\" or \"all\", not \"" + allow_aten + "\"");
}

}  // namespace onnxtorch
