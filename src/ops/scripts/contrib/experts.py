# MoE, QMoE; TorchEmbedding, IsAllFinite.


# --- Which experts a token goes to ---


# Gives the k best experts of each row; of equal ones the last comes first.
def best_experts(scores: Tensor, k: int) -> Tensor:
    experts = scores.size(-1)
    assert 1 <= k and k <= experts, "k is from 1 to the number of experts"
    order = torch.argsort(torch.flip(scores, [-1]), dim=-1, descending=True, stable=True)
    return experts - 1 - torch.slice(order, -1, 0, k)


# Gives the best expert of each row among those not taken, and its share among those that are about as good.
def sparse_mixer_choice(scores: Tensor, is_taken: Tensor) -> Tuple[Tensor, Tensor]:
    best, expert = torch.max(torch.masked_fill(scores, is_taken, -float("inf")), -1, keepdim=True)
    is_far = best - scores > 0.02 * torch.maximum(torch.abs(scores), best)
    shares = torch.softmax(torch.masked_fill(scores, torch.logical_or(is_far, is_taken), -float("inf")), -1)
    return expert, torch.gather(shares, -1, expert)


# Gives the two experts of each row, and the weights of their outputs. (onnxruntime's kernels for the CPU do not read
# use_sparse_mixer.)
def sparse_mixer(scores: Tensor, k: int) -> Tuple[Tensor, Tensor]:
    assert k == 2, "use_sparse_mixer needs a k of 2"
    nothing = torch.zeros_like(scores, dtype=torch.bool)
    first, first_share = sparse_mixer_choice(scores, nothing)
    second, second_share = sparse_mixer_choice(scores, torch.scatter(nothing, -1, first, True))
    return torch.cat([first, second], -1), torch.cat([first_share, second_share], -1)


def moe_routes(scores: Tensor, k: int, normalize: bool) -> Tuple[Tensor, Tensor]:
    shares = torch.softmax(scores, -1)
    chosen = best_experts(shares, k)
    weights = torch.gather(shares, -1, chosen)
    return chosen, weights / torch.sum(weights, -1, keepdim=True) if normalize else weights


# Gives the experts of each row and their weights, as onnxruntime's kernel has it: softmax is over the k best, whatever
# normalize_routing_weights says, and weights of router_weights that are not positive count as zero.
def qmoe_routes(scores: Tensor, router_weights: Optional[Tensor], k: int, normalize: bool) -> Tuple[Tensor, Tensor]:
    chosen = best_experts(scores, k)
    if router_weights is None:
        return chosen, torch.softmax(torch.gather(scores, -1, chosen), -1)
    weights = torch.gather(router_weights.to(torch.float32), -1, chosen)
    if normalize:
        total = torch.sum(weights, -1, keepdim=True)
        weights = torch.where(total == 0, 0.0, weights / total)
    return chosen, torch.where(weights > 1e-8, weights, 0.0)


# --- What an expert computes ---


def expert_activation(x: Tensor, activation_type: str) -> Tensor:
    if activation_type == "relu":
        return torch.relu(x)
    if activation_type == "gelu":
        return torch.gelu(x, approximate="tanh")
    if activation_type == "silu":
        return torch.silu(x)
    assert activation_type == "identity", "there is no activation {}".format(activation_type)
    return x


def expert_swiglu(gate: Tensor, linear: Tensor, alpha: float, beta: float, limit: Optional[float]) -> Tensor:
    if limit is not None:
        gate, linear = torch.clamp_max(gate, limit), torch.clamp(linear, -limit, limit)
    return swiglu(gate, linear + beta, alpha)


# Applies the activation. y is the output of FC1, z that of FC3, which is a gate for any activation but SwiGLU.
def gated_activation(
    y: Tensor, z: Optional[Tensor], activation_type: str, swiglu_fusion: int, alpha: float, beta: float,
    limit: Optional[float]
) -> Tensor:
    if activation_type != "swiglu":
        activated = expert_activation(y, activation_type)
        return activated if z is None else activated * z
    if swiglu_fusion == 0:
        assert z is not None, "swiglu needs FC3, or swiglu_fusion"
        return expert_swiglu(y, z, alpha, beta, limit)
    assert swiglu_fusion == 1 or swiglu_fusion == 2, "swiglu_fusion is 0, 1 or 2"
    assert y.size(-1) % 2 == 0, "FC1 has an odd number of rows"
    if swiglu_fusion == 1:
        pairs = torch.reshape(y, [y.size(0), y.size(1) // 2, 2])
        return expert_swiglu(torch.select(pairs, -1, 0), torch.select(pairs, -1, 1), alpha, beta, limit)
    halves = torch.chunk(y, 2, -1)
    return expert_swiglu(halves[0], halves[1], alpha, beta, limit)


# Gives the weight of an expert, whose rows hold blocks of codes in units of a scale (with block size 0 each row is one
# block); without scales it is as stored.
def weight_of_expert(
    weights: Tensor, scales: Optional[Tensor], zero_points: Optional[Tensor], expert: int, quant_type: str, bits: int,
    block_size: int, dtype: int
) -> Tensor:
    stored = torch.select(weights, 0, expert)
    if scales is None:
        return stored
    if quant_type == "fp8":
        numbers = stored.to(torch.float32)
    elif quant_type == "int":
        numbers = unpacked_bits(stored, bits)
    else:
        numbers = small_float_value(unpacked_bits(stored, 4), 2, 1, 1)
    zero_point = None if zero_points is None else torch.select(zero_points, 0, expert)
    rows, columns = numbers.size(0), numbers.size(1)
    scale = torch.select(scales, 0, expert)
    y = dequantized_blocks(numbers, scale, zero_point, rows, columns, columns if block_size == 0 else block_size)
    return y.to(dtype)


def bias_of_expert(bias: Optional[Tensor], expert: int) -> Optional[Tensor]:
    return None if bias is None else torch.select(bias, 0, expert)


# Computes the experts' outputs. Each expert takes its tokens at once: they are sorted by expert, and the outputs put
# back.
@kept
def mixture_of_experts(
    x: Tensor, chosen: Tensor, shares: Tensor, fc1: Tensor, fc1_scales: Optional[Tensor],
    fc1_zero_points: Optional[Tensor], fc1_bias: Optional[Tensor], fc2: Tensor, fc2_scales: Optional[Tensor],
    fc2_zero_points: Optional[Tensor], fc2_bias: Optional[Tensor], fc3: Optional[Tensor], fc3_scales: Optional[Tensor],
    fc3_zero_points: Optional[Tensor], fc3_bias: Optional[Tensor], quant_type: str, bits: List[int],
    block_size: int, activation_type: str, swiglu_fusion: int, alpha: float, beta: float, limit: Optional[float]
) -> Tensor:
    tokens, k = chosen.size(0), chosen.size(1)
    flat = torch.flatten(chosen)
    order = torch.argsort(flat, stable=True)
    counts: List[int] = torch.bincount(flat, minlength=fc1.size(0)).cpu().tolist()
    parts = torch.split_with_sizes(torch.index_select(x, 0, order // k), counts)
    outputs = [torch.slice(x, 0, 0, 0)]
    for expert in range(len(counts)):
        if counts[expert] > 0:
            part = parts[expert]
            w1 = weight_of_expert(fc1, fc1_scales, fc1_zero_points, expert, quant_type, bits[0], block_size,
                                  x.dtype)
            w2 = weight_of_expert(fc2, fc2_scales, fc2_zero_points, expert, quant_type, bits[1], block_size,
                                  x.dtype)
            z: Optional[Tensor] = None
            if fc3 is not None:
                w3 = weight_of_expert(fc3, fc3_scales, fc3_zero_points, expert, quant_type, bits[2], block_size,
                                      x.dtype)
                z = torch.linear(part, w3, bias_of_expert(fc3_bias, expert))
            y = torch.linear(part, w1, bias_of_expert(fc1_bias, expert))
            hidden = gated_activation(y, z, activation_type, swiglu_fusion, alpha, beta, limit)
            outputs.append(torch.linear(hidden, w2, bias_of_expert(fc2_bias, expert)))
    in_place = torch.index_select(torch.cat(outputs), 0, torch.argsort(order))
    of_tokens = torch.reshape(in_place, [tokens, k, x.size(1)]).to(torch.float32)
    return torch.sum(of_tokens * torch.unsqueeze(shares, -1), 1).to(x.dtype)


# --- What it computes with ---


def token_rows(input: Tensor) -> Tensor:
    assert input.dim() == 2 or input.dim() == 3, "input has 2 or 3 dimensions"
    return torch.flatten(input, 0, -2)


def router_scores(router_probs: Tensor, x: Tensor, fc1: Tensor) -> Tensor:
    assert router_probs.size() == [x.size(0), fc1.size(0)], "router_probs needs a row for each token, of all experts"
    return router_probs.to(torch.float32)


# Reshapes weights of FC1 and FC3, whose columns are those of x, or of FC2, whose rows are. Some files have the sizes in
# another order than the weights are stored in.
def expert_matrices(weights: Tensor, x: Tensor, bits: int, has_its_columns: bool) -> Tensor:
    assert weights.dim() == 3, "the weights have 3 dimensions"
    experts, per_expert = weights.size(0), weights.size(1) * weights.size(2)
    known = x.size(1) * bits // 8 if has_its_columns else x.size(1)
    assert known > 0 and per_expert % known == 0, "the weights do not fit hidden_size"
    other = per_expert // known
    return torch.reshape(weights, [experts, other, known] if has_its_columns else [experts, known, other])


# Gives the scales of the blocks of each row of all experts. Without blocks a row is one; blocks of fp8 are square.
def expert_scales(
    weights: Tensor, scales: Optional[Tensor], global_scale: Optional[Tensor], quant_type: str, bits: int,
    block_size: int
) -> Tensor:
    experts, rows, columns = weights.size(0), weights.size(1), weights.size(2) * 8 // bits
    if quant_type == "fp8" and block_size == 0:
        assert global_scale is not None, "fp8 needs scales of its blocks or of the experts"
        return torch.expand(torch.reshape(global_scale, [-1, 1, 1]), [experts, rows, 1])
    assert scales is not None, "the weights need scales"
    numbers = scales.to(torch.float32)
    if quant_type == "fp8":
        numbers = each_of_block(numbers, [experts, rows], 1, block_size)
    elif global_scale is not None:
        numbers = numbers * torch.reshape(global_scale, [-1, 1, 1])
    if numbers.dim() == 2:
        numbers = torch.unsqueeze(numbers, -1)
    blocks = blocks_of(columns, block_size) if block_size > 0 else 1
    assert numbers.size() == [experts, rows, blocks], "the scales do not fit the weights"
    return numbers


# Gives the zero points, which are packed for each row, or for each expert where a row is one block.
def expert_zero_points(zero_points: Optional[Tensor], scales: Tensor, bits: int) -> Tensor:
    if zero_points is None:
        return torch.full_like(scales, 1 << (bits - 1))
    of_rows = zero_points.dim() == 2
    numbers = torch.slice(unpacked_bits(zero_points, bits), -1, 0, scales.size(1) if of_rows else scales.size(2))
    numbers = torch.unsqueeze(numbers, -1) if of_rows else numbers
    assert numbers.size() == scales.size(), "the zero points do not fit the scales"
    return numbers.to(torch.float32)


# --- Two operators of training ---


def torch_embedding(weight: Tensor, indices: Tensor, padding_idx: Optional[int],
                    scale_grad_by_freq: Optional[bool]) -> Tensor:
    padding = -1 if padding_idx is None else padding_idx % max(weight.size(0), 1)
    return torch.embedding(weight, indices, padding, False if scale_grad_by_freq is None else scale_grad_by_freq)


def has_only_finite(x: Tensor, isinf_only: bool, isnan_only: bool) -> Tensor:
    is_wrong = torch.isinf(x) if isinf_only else torch.isnan(x) if isnan_only else torch.logical_not(torch.isfinite(x))
    return torch.logical_not(torch.any(is_wrong))
