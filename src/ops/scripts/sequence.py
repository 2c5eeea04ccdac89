# SequenceInsert, SequenceErase, SplitToSequence. A sequence is never changed in place: other nodes may hold it.


def sequence_insert(input_sequence: List[Tensor], tensor: Tensor, position: Optional[int]) -> List[Tensor]:
    items = input_sequence.copy()
    if position is None:
        items.append(tensor)
    else:
        assert -len(items) <= position and position <= len(items), "the position lies outside the sequence"
        items.insert(position, tensor)
    return items


def sequence_erase(input_sequence: List[Tensor], position: Optional[int]) -> List[Tensor]:
    items = input_sequence.copy()
    items.pop(-1 if position is None else position)
    return items


# Asserts that there are not too many pieces: each takes some hundred bytes, however few elements it has.
def may_have_pieces(count: int) -> bool:
    assert count <= 4194304, "{} pieces are too many".format(count)
    return count <= 4194304


def pieces_of(input: Tensor, length: int, axis: int) -> List[Tensor]:
    return torch.split(input, length, axis) if may_have_pieces(input.size(axis) // max(length, 1)) else [input]


def elements_of(input: Tensor, axis: int) -> List[Tensor]:
    return torch.unbind(input, axis) if may_have_pieces(input.size(axis)) else [input]


def split_to_sequence(input: Tensor, split: Tensor, lengths: List[int], axis: int) -> List[Tensor]:
    if split.dim() == 0:
        return pieces_of(input, lengths[0], axis)
    return torch.split(input, lengths, axis)
