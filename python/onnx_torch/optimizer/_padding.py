"""The rewrite of zeros around an image that a convolution can pad by itself."""

from __future__ import annotations

from onnx import helper

from ._graph import Graph, Node


def join(graph: Graph) -> bool:
    """Takes a Pad into the convolution that is its only reader."""
    changed = False
    for node in graph.nodes:
        pad = graph.giver(node.input(0))
        if node.op == "Conv" and not node.removed and pad is not None and pad.op == "Pad":
            changed = _take(graph, pad, node) or changed
    return changed


def _take(graph: Graph, pad: Node, convolution: Node) -> bool:
    pads = _spatial(graph, pad)
    automatic = convolution.attribute("auto_pad", b"NOTSET")
    if pads is None or automatic not in (b"NOTSET", b"VALID"):
        return False
    own = convolution.attribute("pads") or [0] * len(pads)
    if len(own) != len(pads) or graph.only_reader(pad.outputs[0]) is not convolution:
        return False
    proto = convolution.proto
    kept = [attribute for attribute in proto.attribute if attribute.name not in ("pads", "auto_pad")]
    del proto.attribute[:]
    proto.attribute.extend([*kept, helper.make_attribute("pads", [a + b for a, b in zip(own, pads, strict=True)])])
    graph.change_input(convolution, 0, pad.input(0))
    return True


def _spatial(graph: Graph, pad: Node) -> list[int] | None:
    """Returns the pads of the dimensions behind batch and channels, where zeros are added and nothing is cut."""
    if pad.attribute("mode", b"constant") != b"constant":
        return None
    if graph.opset >= 11:
        pads, value = graph.integers(pad.input(1)), graph.scalar(pad.input(2)) if pad.input(2) else 0
        axes = graph.integers(pad.input(3)) if pad.input(3) else None
        rank = graph.rank(pad.input(0))
        if pad.input(3) and (axes is None or rank is None):
            return None
        if axes is not None and rank is not None and pads is not None:
            whole = [0] * (2 * rank)
            for i, axis in enumerate(axes):
                whole[axis % rank], whole[axis % rank + rank] = pads[i], pads[i + len(axes)]
            pads = whole
    else:
        pads, value = pad.attribute("pads"), pad.attribute("value", 0.0)
    if pads is None or value != 0 or len(pads) < 6 or min(pads) < 0:
        return None
    half = len(pads) // 2
    return None if any(pads[:2]) or any(pads[half : half + 2]) else [*pads[2:half], *pads[half + 2 :]]
