# Functions of ai.onnx.ml. Features are rows [N, F]; a vector [F] is one row.


def rows_of(x: Tensor) -> Tensor:
    return torch.unsqueeze(x, 0) if x.dim() == 1 else x


def erfinv_approximation(x: Tensor) -> Tensor:
    # This is Winitzki's approximation, by which the reference implementation defines PROBIT: within 0.2% of the true
    # value.
    a = 0.147
    log = torch.log((1.0 - x) * (1.0 + x))
    v = 2.0 / (3.141592653589793 * a) + 0.5 * log
    size = torch.sqrt(torch.sqrt(v * v - log / a) - v)
    return torch.where(x < 0, -size, size)


def softmax_zero(scores: Tensor) -> Tensor:
    # Scores of zero stay zero. Where all are, each becomes 0.5.
    largest = torch.amax(scores, [-1], keepdim=True)
    weights = torch.where(torch.abs(scores) > 1e-7, torch.exp(scores - largest), scores * torch.exp(-largest))
    total = torch.sum(weights, [-1], keepdim=True)
    return torch.where(total == 0, 0.5, weights / total)


def probit(scores: Tensor) -> Tensor:
    # Double precision is needed, as the terms cancel near 0.5.
    return (1.41421356 * erfinv_approximation(2.0 * scores.to(torch.float64) - 1.0)).to(scores.dtype)


# Gives the scores of two classes where there is one score: the first class has its opposite.
def scores_of_both(scores: Tensor) -> Tensor:
    return torch.cat([-scores, scores], 1) if scores.size(1) == 1 else scores


# Gives the scores of two classes by the second's: the first has 1 minus a probability, or the opposite of a score.
def scores_by_one(score: Tensor, is_probability: bool) -> Tensor:
    other = 1.0 - score if is_probability else -score
    return torch.cat([other, score], 1)


def linear_scores(x: Tensor, coefficients: Tensor, intercepts: Optional[Tensor]) -> Tensor:
    rows = rows_of(x)
    if coefficients.dim() == 1:
        coefficients = torch.reshape(coefficients, [-1, rows.size(1)])
    return torch.linear(rows, coefficients, intercepts)


# Support vector machines


# The scores of support vector machines are computed in double precision, as sums of many vectors cancel. The attributes
# are floats: support vectors [F, V], one below another for each feature, and coefficients [scores, V].


# Computes the kernel of features, [N, F], and all vectors, [N, V]; params are gamma, coef0 and degree.
def kernel_values(x: Tensor, vectors: Tensor, kernel: str, params: List[float]) -> Tensor:
    gamma, coef0, degree = params
    if kernel == "RBF":
        exactly = 2  # not by a matrix product, in which near points lose their distance
        return torch.exp(-gamma * torch.square(torch.cdist(x, torch.t(vectors), 2.0, exactly)))
    products = gamma * torch.matmul(x, vectors) + coef0
    return torch.pow(products, degree) if kernel == "POLY" else torch.tanh(products)


@kept
def support_vector_scores(
    x: Tensor, vectors: Tensor, coefficients: Tensor, rho: Tensor, kernel: str, params: List[float], dtype: int
) -> Tensor:
    values = kernel_values(x.to(torch.float64), vectors.to(torch.float64), kernel, params)
    return torch.linear(values, coefficients.to(torch.float64), rho).to(dtype)


@kept
def divided_by_sum_of_magnitudes(x: Tensor) -> Tensor:
    size = torch.sum(torch.abs(x), [-1], keepdim=True)
    return x / torch.where(size == 0, 1.0, size)


@kept
def label_of_highest(scores: Tensor, labels: Tensor) -> Tensor:
    return torch.index_select(labels, 0, torch.argmax(scores, 1))


@kept
def linear_in_double(x: Tensor, weights: Tensor, bias: Tensor, dtype: int) -> Tensor:
    return torch.linear(x.to(torch.float64), weights, bias).to(dtype)


# Multiplies by the weighted sum of all vectors, which gives what the weighted products with each would.
def scores_of_linear_kernel(x: Tensor, vectors: Tensor, coefficients: Tensor, rho: Tensor, dtype: int) -> Tensor:
    weights = torch.matmul(coefficients.to(torch.float64), torch.t(vectors).to(torch.float64))
    return linear_in_double(x, weights, rho, dtype)


def scores_without_vectors(x: Tensor, coefficients: Tensor, rho: Tensor, dtype: int) -> Tensor:
    rows = rows_of(x)
    weights = torch.reshape(coefficients, [-1, rows.size(1)]).to(torch.float64)
    return linear_in_double(rows, weights, torch.expand_copy(rho, [weights.size(0)]), dtype)


def one_class(scores: Tensor) -> Tensor:
    return torch.where(torch.gt(scores, 0), 1.0, -1.0).to(scores.dtype)


# Counts votes: a score of [N, pairs] above zero is one for the first class of its pair, another one for the second.
def votes_of_pairs(scores: Tensor, votes: Tensor, votes_of_zero: Tensor) -> Tensor:
    return torch.linear(torch.gt(scores, 0).to(torch.float32), votes, votes_of_zero)


def probabilities_of_pairs(
    scores: Tensor, prob_a: Tensor, prob_b: Tensor, first: Tensor, second: Tensor, classes: int
) -> Tensor:
    tiny = 1e-7
    of_first = torch.clamp(torch.sigmoid(-(scores * prob_a + prob_b)), tiny, 1.0 - tiny)
    pairs = torch.zeros([scores.size(0), classes, classes], dtype=scores.dtype, device=scores.device)
    pairs[:, first, second] = of_first
    pairs[:, second, first] = 1.0 - of_first
    return torch.ops.onnx_torch.multiclass_probability(pairs)


# Features


def array_feature_extractor(X: Tensor, Y: Tensor) -> Tensor:
    return rows_of(torch.index_select(X, -1, torch.reshape(Y, [-1])))


def binarizer(X: Tensor, threshold: float) -> Tensor:
    return torch.gt(X, threshold).to(X.dtype)


def feature_vectorizer(X: List[Tensor], inputdimensions: Optional[List[int]]) -> Tensor:
    parts: List[Tensor] = []
    for i, x in enumerate(X):
        part = torch.flatten(rows_of(x), 1).to(torch.float32)
        if inputdimensions is not None:
            part = torch.constant_pad_nd(part, [0, inputdimensions[i] - part.size(1)])
        parts.append(part)
    return torch.cat(parts, 1)


# Labels and maps


def one_hot_encoder(X: Tensor, categories: Tensor, zeros: bool) -> Tensor:
    positions = torch.ops.onnx_torch.find_keys(X, categories)
    if not zeros:
        assert bool(torch.all(positions >= 0)), "an element is none of the categories, and zeros is 0"
    columns = torch.arange(categories.size(0), device=X.device)
    return torch.eq(torch.unsqueeze(positions, -1), columns).to(torch.float32)


def zip_map(X: Tensor, labels: Tensor) -> List[Tuple[Tensor, Tensor]]:
    rows = rows_of(X)
    assert rows.size(1) == labels.size(0), "{} columns cannot have {} labels".format(rows.size(1), labels.size(0))
    return [(labels, row) for row in elements_of(rows, 0)]


def dict_vectorizer(X: Tuple[Tensor, Tensor], vocabulary: Tensor) -> Tensor:
    keys, values = X
    absent = torch.zeros([1], dtype=values.dtype, device=values.device)
    return torch.unsqueeze(torch.ops.onnx_torch.map_keys(vocabulary, keys, values, absent), 0)


def map_parts(X: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tensor]:
    return X


def dense_map(keys: Tensor, values: Tensor) -> Tensor:
    return torch.unsqueeze(values[torch.argsort(keys)], 0)


def sparse_map(keys: Tensor, values: Tensor, length: int) -> Tensor:
    assert bool(torch.all(torch.logical_and(keys >= 0, keys < length))), "a key is not in 0..max_map - 1"
    result = torch.zeros([1, length], dtype=values.dtype, device=values.device)
    result[0, keys] = values
    return result
