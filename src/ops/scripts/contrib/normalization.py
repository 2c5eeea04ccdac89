# SimplifiedLayerNormalization, EmbedLayerNormalization, GroupNorm, SkipGroupNorm, GatedRMSNorm, BranchwiseRMSNorm,
# HyperConnectionPreMix, HyperConnectionPostMix, EngramGate, BitmaskDropout.


def inverse_rms(x: Tensor, axis: int, epsilon: float) -> Tensor:
    axes = [i for i in range(wrapped(axis, x.dim()), x.dim())]
    return torch.rsqrt(torch.mean(torch.square(x), axes, keepdim=True) + epsilon)


# --- EmbedLayerNormalization ---


def positions_of(input_ids: Tensor) -> Tensor:
    return torch.arange(input_ids.size(1), device=input_ids.device)


# Counts the words of each sequence whose mask is 1. The operator's specification says up to the first 0 instead.
def mask_index(input_ids: Tensor, mask: Optional[Tensor]) -> Tensor:
    if mask is None:
        return torch.zeros([input_ids.size(0)], dtype=torch.int32, device=input_ids.device)
    return torch.sum(mask == 1, 1, dtype=torch.int32)


def dequantized_by_one(x: Tensor, scale: Tensor, zero_point: Optional[Tensor]) -> Tensor:
    zero = None if zero_point is None else one_for_all(zero_point).to(torch.float32)
    return dequantize_linear(x, one_for_all(scale), zero, torch.float32)


# --- Group normalization ---


# Puts the channels second in an input that is for each channel, or for each position as well in the layout of X.
def channels_second(x: Tensor, channels_last: bool) -> Tensor:
    if x.dim() == 2:
        return torch.reshape(x, x.size() + [1, 1])
    return torch.permute(x, [0, 3, 1, 2]) if channels_last else x


def skip_group_norm(
    X: Tensor,
    gamma: Tensor,
    beta: Tensor,
    skip: Optional[Tensor],
    bias: Optional[Tensor],
    activation: int,
    channels_last: bool,
    epsilon: float,
    groups: int,
) -> Tuple[Tensor, Tensor]:
    assert activation == 0 or activation == 1, "the activation is 0 or 1"
    S = channels_second(X, channels_last)
    if skip is not None:
        S = S + channels_second(skip, channels_last)
    if bias is not None:
        S = S + torch.reshape(bias, [-1, 1, 1])
    Y = torch.group_norm(S, groups, gamma, beta, epsilon)
    if activation == 1:
        Y = torch.silu(Y)
    if channels_last:
        return torch.permute(Y, [0, 2, 3, 1]), torch.permute(S, [0, 2, 3, 1])
    return Y, S


# --- RMS normalization with gates ---


# Normalizes groups of as many elements as there are scales, and multiplies by the gate.
def gated_rms_norm(X: Tensor, scale: Tensor, gate: Tensor, activation: str, epsilon: float) -> Tensor:
    size = scale.numel()
    groups = torch.reshape(X, X.size()[:-1] + [X.size(-1) // size, size])
    normed = torch.reshape(torch.rms_norm(groups, [size], scale, epsilon), X.size())
    if activation == "sigmoid":
        return normed * torch.sigmoid(gate)
    assert activation == "silu" or activation == "swish", "there is no activation " + activation
    return normed * torch.silu(gate)


# Makes streams (…, branches, features), which come flattened where num_branches is given.
def grouped_streams(streams: Tensor, num_branches: int) -> Tensor:
    if num_branches == 0:
        return streams
    return torch.reshape(streams, streams.size()[:-1] + [num_branches, streams.size(-1) // num_branches])


# Reshapes the gates of streams to broadcast: they are one for each branch, (…, C) or (…, C, 1), or for each feature,
# (…, C, H) or (…, C * H).
def stream_gates(gates: Tensor, streams: Tensor) -> Tensor:
    if gates.dim() == streams.dim():
        return gates
    return torch.reshape(gates, streams.size()[:-1] + [gates.size(-1) // streams.size(-2)])


def branchwise_rms_norm(X: Tensor, scale: Optional[Tensor], num_branches: int, epsilon: float) -> Tensor:
    x = grouped_streams(X, num_branches)
    features = x.size(-1)
    y = torch.rms_norm(x, [features], None, epsilon)
    if scale is not None:  # scale is (H), (C, H) or (C * H)
        y = y * torch.reshape(scale, [scale.numel() // features, features])
    return torch.reshape(y, X.size())


def hyper_connection_pre_mix(streams: Tensor, pre_mix: Tensor, num_branches: int, reduction_scale: float) -> Tensor:
    x = grouped_streams(streams, num_branches)
    return torch.sum(x * stream_gates(pre_mix, x), -2) * reduction_scale


def hyper_connection_post_mix(
    streams: Tensor, block_output: Tensor, post_mix: Tensor, stream_mix: Optional[Tensor], num_branches: int
) -> Tensor:
    x = grouped_streams(streams, num_branches)
    injected = stream_gates(post_mix, x) * torch.unsqueeze(block_output, -2)
    mixed = x if stream_mix is None else torch.matmul(torch.transpose(stream_mix, -2, -1), x)
    return torch.reshape(mixed + injected, streams.size())


def engram_gate(
    key: Tensor,
    query: Tensor,
    value: Tensor,
    key_norm_scale: Tensor,
    query_norm_scale: Tensor,
    conv_norm_scale: Optional[Tensor],
    epsilon: float,
    num_outputs: int,
) -> Tuple[Tensor, Tensor]:
    assert num_outputs == 1 or conv_norm_scale is not None, "gated_value_normed takes a conv_norm_scale"
    size = [key.size(-1)]
    keys = torch.rms_norm(key, size, None, epsilon) * key_norm_scale
    queries = torch.rms_norm(query, size, None, epsilon) * query_norm_scale
    dot = torch.sum(keys * queries, -1, keepdim=True) / key.size(-1) ** 0.5
    gate = torch.sigmoid(torch.sign(dot) * torch.sqrt(torch.clamp_min(torch.abs(dot), 1e-6)))
    output = gate * torch.unsqueeze(value, -2)
    if conv_norm_scale is None:
        return output, output
    return output, torch.rms_norm(output, size, None, epsilon) * conv_norm_scale


# --- Dropout ---


# Packs a mask into integers of 32 elements each, the first in the lowest bit. The last one is filled up with zeros.
def packed_mask(mask: Tensor) -> Tensor:
    count = (mask.numel() + 31) // 32
    bits = torch.constant_pad_nd(torch.flatten(mask).to(torch.int64), [0, 32 * count - mask.numel()], 0)
    return torch.sum(torch.reshape(bits, [count, 32]) * torch.pow(2, torch.arange(32, device=mask.device)), 1)
