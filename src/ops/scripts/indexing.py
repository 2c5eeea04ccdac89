# Gather, GatherND, ScatterND, TensorScatter, ReverseSequence, Compress, TopK.


def from_start(indices: Tensor, size: int) -> Tensor:
    return torch.where(indices < 0, indices + size, indices)


def gather_ints(data: List[int], indices: List[int]) -> List[int]:
    return [data[i] for i in indices]


# Picks rows, or elements, and places elements, by indices that count from the end where they are negative.
@kept
def index_select_from_either_end(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    return torch.index_select(data, axis, from_start(indices, data.size(axis)))


@kept
def gather_from_either_end(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    return torch.gather(data, axis, from_start(indices, data.size(axis)))


@kept
def scatter_from_either_end(data: Tensor, axis: int, indices: Tensor, updates: Tensor) -> Tensor:
    return torch.scatter(data, axis, from_start(indices, data.size(axis)), updates)


# Gathers along an axis by indices that count from the start.
def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    return of_indices(torch.index_select(data, axis, torch.reshape(indices, [-1])), data, axis, indices)


# Lays out what has been picked along an axis, a row for each index, in the dimensions of the indices.
def of_indices(picked: Tensor, data: Tensor, axis: int, indices: Tensor) -> Tensor:
    if axis < 0:
        axis = axis + data.dim()
    return torch.reshape(picked, data.size()[:axis] + indices.size() + data.size()[axis + 1:])


def batch_coordinates(indices: Tensor, axis: int) -> Tensor:
    shape = repeats_along(indices.dim() - 1, axis, indices.size(axis))
    return torch.reshape(torch.arange(indices.size(axis), device=indices.device), shape)


# Makes the indices for ATen's index and index_put: the last dimension of `indices` holds coordinates, which follow
# those of the `batch_dims` dimensions that it shares with the data. (There is no loop where there are none: a list that
# is appended to makes torch analyse what the whole graph writes.)
def coordinates(data: Tensor, indices: Tensor, batch_dims: int) -> List[Tensor]:
    count, most = indices.size(-1), data.dim() - batch_dims
    if count > most:  # there may be billions: a tensor of no elements takes no memory
        assert count <= most, "{} coordinates are too many for {} dimensions".format(count, most)
        return [indices]
    given = torch.unbind(indices, -1)
    if batch_dims == 0:
        return given
    return [batch_coordinates(indices, axis) for axis in range(batch_dims)] + given


def gather_nd(data: Tensor, indices: Tensor, batch_dims: int) -> Tensor:
    return torch.index(data, coordinates(data, indices, batch_dims))


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return torch.index_put(data, coordinates(data, indices, 0), updates)


# Scatters with a reduction. The dimensions that the coordinates address, and those that they do not, are flattened into
# one each.
def scatter_nd_reduce(data: Tensor, indices: Tensor, updates: Tensor, reduce: str) -> Tensor:
    addressed = data.size()[:indices.size(-1)]
    rows, columns = flat_sizes(data.size(), len(addressed))
    table = torch.reshape(data, [rows, columns])
    numbers = torch.reshape(torch.arange(rows, device=data.device), addressed)
    targets = torch.reshape(torch.index(numbers, coordinates(data, indices, 0)), [-1, 1])
    values = torch.reshape(updates, [targets.size(0), columns])
    result = torch.scatter_reduce(table, 0, torch.expand(targets, values.size()), values, reduce)
    return torch.reshape(result, data.size())


# Views a single-byte type as uint8: index_put lacks kernels for some such types, and which one it is does not matter to
# it. (view_copy is called because TorchScript does not find the view that changes the dtype.)
def as_bytes(x: Tensor) -> Tensor:
    return torch.view_copy(x, dtype=torch.uint8) if x.element_size() == 1 else x


def from_bytes(x: Tensor, dtype: int) -> Tensor:
    return torch.view_copy(x, dtype=dtype) if x.element_size() == 1 else x


# Has ATen refuse negative indices, which it would take: they become one that lies outside.
def refused_if_negative(indices: Tensor, outside: int) -> Tensor:
    return torch.where(indices < 0, outside, indices)


@kept
def tensor_scatter(
    past_cache: Tensor, update: Tensor, write_indices: Optional[Tensor], axis: int, mode: str
) -> Tensor:
    cache = as_bytes(torch.movedim(past_cache, axis, 1))
    batch = torch.unsqueeze(torch.arange(cache.size(0), device=cache.device), 1)
    positions = torch.unsqueeze(torch.arange(update.size(axis), device=cache.device), 0)
    if write_indices is not None:
        first = torch.remainder(write_indices, cache.size(1)) if mode == "circular" else refused_if_negative(
            write_indices, cache.size(1))
        positions = torch.unsqueeze(first, 1) + positions
    if mode == "circular":
        positions = torch.remainder(positions, cache.size(1))
    result = torch.index_put(cache, [batch, positions], as_bytes(torch.movedim(update, axis, 1)))
    return torch.movedim(from_bytes(result, past_cache.dtype), 1, axis)


def reverse_sequence(input: Tensor, sequence_lens: Tensor, batch_axis: int, time_axis: int) -> Tensor:
    steps = torch.unsqueeze(torch.arange(input.size(time_axis), device=input.device), batch_axis)
    lengths = torch.unsqueeze(refused_if_negative(sequence_lens, input.size(time_axis) + 1), time_axis)
    positions = torch.where(steps < lengths, lengths - 1 - steps, steps)
    batch = torch.unsqueeze(torch.arange(input.size(batch_axis), device=input.device), time_axis)
    row = batch * input.size(1) + positions if batch_axis == 0 else positions * input.size(1) + batch
    rows = torch.flatten(torch.unsqueeze(input, -1), 0, 1)
    return torch.reshape(torch.index_select(rows, 0, torch.flatten(row)), input.size())


# Selects by a condition, which may be shorter than the axis.
def compress(input: Tensor, condition: Tensor, axis: Optional[int]) -> Tensor:
    kept = torch.squeeze(torch.nonzero(condition), 1)
    if axis is None:
        return torch.index_select(torch.reshape(input, [-1]), 0, kept)
    return torch.index_select(input, axis, kept)


@kept
def top_k_by_sort(x: Tensor, k: int, axis: int, largest: bool) -> Tuple[Tensor, Tensor]:
    values, indices = torch.sort(x, stable=True, dim=axis, descending=largest)
    return torch.narrow(values, axis, 0, k), torch.narrow(indices, axis, 0, k)


# Maps numbers of up to 32 bits to integers in the range of int32 in the same order, NaN being the largest. Here an
# int64 holds a uint32.
def ordinals(x: Tensor) -> Tensor:
    if x.dtype == torch.int64:
        return x - 2147483648
    if not torch.is_floating_point(x):
        return x.to(torch.int64)
    bits = torch.view_copy(x.to(torch.float32) + 0.0, dtype=torch.int32).to(torch.int64)  # -0.0 becomes 0.0
    return torch.masked_fill(torch.where(bits < 0, -2147483648 - bits, bits), torch.isnan(x), 2147483647)


# Finds the k largest or smallest elements. Of equal ones the one with the lower index comes first, which ATen's topk
# leaves open, so the index becomes the low half of the keys that it compares. That is much faster than sorting all of
# them.
@kept
def top_k_by_key(x: Tensor, k: int, axis: int, largest: bool) -> Tuple[Tensor, Tensor]:
    numbers = torch.arange(x.size(axis), device=x.device)
    low = torch.bitwise_not(numbers) if largest else numbers
    low = torch.bitwise_and(torch.reshape(low, repeats_along(x.dim(), axis, x.size(axis))), 4294967295)
    keys = torch.bitwise_or(torch.bitwise_left_shift(ordinals(x), 32), low)
    chosen, indices = torch.topk(keys, k, axis, largest, True)
    return torch.gather(x, axis, indices), indices
