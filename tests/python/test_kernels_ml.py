"""The kernels of ai.onnx.ml and TfIdfVectorizer, against the reference implementation and onnxruntime."""

import numpy as np
import pytest
import torch
from onnx import TensorProto
from onnx.helper import make_opsetid, make_tensor, np_dtype_to_tensor_dtype

from kernel_support import kernels, new_pool, run_onnxruntime, run_reference, to_ids

OPSET_23 = [make_opsetid("", 23), make_opsetid("ai.onnx.ml", 5)]
classes = torch.classes.onnx_torch


def saved_and_loaded(value, tmp_path):
    """Gives a custom class as it comes back from a file, in the place of an attribute of a module."""

    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.value = value

        def forward(self):
            return self.value

    path = str(tmp_path / "holder.pt")
    torch.jit.save(torch.jit.script(Holder()), path)
    return torch.jit.load(path)()


# ---- TfIdfVectorizer

TOKENS = np.array([[1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8], [2, 3, 5, 7, 2, 3, 1, 3, 8, 6, 7, 5]])
# Five single tokens, three pairs and one triple; the columns are in no order.
NGRAMS = {
    "ngram_counts": [0, 5, 11],
    "ngram_indexes": [4, 0, 2, 7, 8, 1, 6, 3, 5],
    "pool_int64s": [2, 3, 5, 4, 6, 5, 6, 7, 8, 6, 7, 3, 7, 6],
}
WEIGHTS = [0.5, 2.0, 3.0, 4.0, -1.0, 6.0, 7.0, 8.0, 9.0]


def vectorizer(mode="TF", shortest=1, longest=3, skip=0, pool=NGRAMS["pool_int64s"], weights=(), **ngrams):
    ngrams = NGRAMS | ngrams
    ints = [[shortest, longest, skip], ngrams["ngram_counts"], ngrams["ngram_indexes"], list(pool)]
    return classes.TfIdfVectorizer.make((mode, ints, [float(w) for w in weights]))


@pytest.mark.parametrize("shape", [(24,), (2, 12), (24, 1)])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("weights", [(), WEIGHTS])
@pytest.mark.parametrize("skip", [0, 1, 5])
@pytest.mark.parametrize("lengths", [(1, 1), (2, 2), (1, 2), (1, 3), (2, 3), (3, 3)])
def test_tf_idf_vectorizer(shape, mode, weights, lengths, skip):
    x = TOKENS.ravel()[: np.prod(shape)].reshape(shape)
    attributes = {"mode": mode, "min_gram_length": lengths[0], "max_gram_length": lengths[1], "max_skip_count": skip}
    if weights:
        attributes["weights"] = weights
    y = kernels.tf_idf_vectorizer(torch.from_numpy(x), vectorizer(mode, *lengths, skip, weights=weights))
    model = ("TfIdfVectorizer", [x], [TensorProto.FLOAT])
    (expected,) = run_onnxruntime(*model, opsets=OPSET_23, **NGRAMS, **attributes)
    assert y.dtype == torch.float32
    np.testing.assert_array_equal(y.numpy(), expected)
    # The reference implementation needs weights, and takes them to be of columns, where the operator's text says
    # n-grams.
    if mode == "TF":
        np.testing.assert_array_equal(y.numpy(), run_reference(*model, **NGRAMS, **attributes)[0])


def test_tf_idf_vectorizer_of_int32_and_strided_tokens():
    x = torch.from_numpy(TOKENS)
    expected = kernels.tf_idf_vectorizer(x, vectorizer())
    torch.testing.assert_close(kernels.tf_idf_vectorizer(x.int(), vectorizer()), expected)
    torch.testing.assert_close(kernels.tf_idf_vectorizer(x.T.contiguous().T, vectorizer()), expected)


def test_tf_idf_vectorizer_of_strings():
    pool = new_pool()
    x = np.array([["a", "b", "a"], ["b", "c", "a"]], dtype=object)
    words = ["a", "b", "b", "c", "c", "a"]
    ngrams = {"ngram_counts": [0, 2], "ngram_indexes": [1, 0, 3, 2]}
    y = kernels.tf_idf_vectorizer(to_ids(pool, x), vectorizer(longest=2, pool=to_ids(pool, words).tolist(), **ngrams))
    attributes = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "pool_strings": words}
    (expected,) = run_onnxruntime("TfIdfVectorizer", [x], [TensorProto.FLOAT], opsets=OPSET_23, **ngrams, **attributes)
    np.testing.assert_array_equal(y.numpy(), expected)


def test_tf_idf_vectorizer_of_no_tokens_is_zero():
    assert kernels.tf_idf_vectorizer(torch.empty(0, dtype=torch.int64), vectorizer()).tolist() == [0] * 9
    assert kernels.tf_idf_vectorizer(torch.empty(2, 0, dtype=torch.int64), vectorizer()).tolist() == [[0] * 9] * 2
    assert kernels.tf_idf_vectorizer(torch.empty(0, 3, dtype=torch.int64), vectorizer()).shape == (0, 9)


def test_tf_idf_vectorizer_is_saved(tmp_path):
    loaded = saved_and_loaded(vectorizer("TFIDF", 1, 3, 2, weights=WEIGHTS), tmp_path)
    x = torch.from_numpy(TOKENS)
    expected = kernels.tf_idf_vectorizer(x, vectorizer("TFIDF", 1, 3, 2, weights=WEIGHTS))
    torch.testing.assert_close(kernels.tf_idf_vectorizer(x, loaded), expected)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"mode": "tf"}, "mode is TF, IDF or TFIDF, not 'tf'"),
        ({"ngram_counts": [0, 4, 11]}, "does not divide the pool into n-grams of length 2"),
        ({"ngram_counts": [0, 5, 50]}, "does not divide the pool"),
        ({"ngram_indexes": [0]}, "1 ngram_indexes for the 9 n-grams"),
        ({"ngram_indexes": [-1] * 9}, "negative"),
        ({"weights": [1]}, "1 weights for 9 ngram_indexes"),
    ],
)
def test_tf_idf_vectorizer_checks_its_attributes(arguments, message):
    with pytest.raises(ValueError, match=message):
        vectorizer(**arguments)


def test_tf_idf_vectorizer_refuses_other_ranks():
    with pytest.raises(ValueError, match=r"shape \[C\] or \[N, C\], not \[1, 1, 1\]"):
        kernels.tf_idf_vectorizer(torch.zeros(1, 1, 1, dtype=torch.int64), vectorizer())


# ---- Tree ensembles

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
FEATURES = 5


def node_list(rng, trees=7, depth=5, targets=3, votes=1, modes=("BRANCH_LEQ",), numbers=np.float32):
    """Makes the attributes of a TreeEnsembleRegressor of random, uneven trees over small whole numbers."""
    fields = "treeids nodeids featureids truenodeids falsenodeids modes values missing_value_tracks_true"
    nodes = {name: [] for name in fields.split()}
    target = {name: [] for name in ["treeids", "nodeids", "ids", "weights"]}

    def add(**fields):
        for name, value in fields.items():
            nodes[name].append(value)

    for tree in range(trees):
        ids = iter(range(1, 2**20))
        open_nodes = [(0, 0)]
        while open_nodes:
            node, level = open_nodes.pop(rng.integers(len(open_nodes)))
            leaf = level == depth or (level > 0 and rng.random() < 0.2)
            true, false = (0, 0) if leaf else (next(ids), next(ids))
            add(treeids=tree, nodeids=node, truenodeids=true, falsenodeids=false)
            add(modes="LEAF" if leaf else str(rng.choice(modes)), featureids=int(rng.integers(FEATURES)))
            add(values=float(rng.integers(5)), missing_value_tracks_true=int(rng.integers(2)))
            if not leaf:
                open_nodes += [(true, level + 1), (false, level + 1)]
                continue
            for vote in rng.choice(targets, votes, replace=False).tolist():
                for name, value in ("treeids", tree), ("nodeids", node), ("ids", vote):
                    target[name].append(value)
                target["weights"].append(float(numbers(rng.normal())))
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"target_{k}": v for k, v in target.items()}


def ensemble_of(attributes, targets, aggregate="SUM", base_values=(), dtype=torch.float32):
    names = "nodes_treeids nodes_nodeids nodes_featureids nodes_truenodeids nodes_falsenodeids"
    names += " nodes_missing_value_tracks_true target_treeids target_nodeids target_ids nodes_modes"
    tensors = [attributes["nodes_values"], attributes["target_weights"], base_values]
    return classes.TreeEnsemble.from_node_list(
        *[attributes.get(name, []) for name in names.split()],
        *[torch.tensor(values, dtype=torch.float64) for values in tensors],
        targets,
        aggregate,
        dtype,
    )


def features(rng, rows, with_missing=False, dtype=np.float32):
    x = rng.integers(-1, 6, (rows, FEATURES)).astype(dtype)
    if with_missing:
        x[rng.random(x.shape) < 0.3] = np.nan
    return x


def regressor(runner, x, attributes, targets, **more):
    opsets = [make_opsetid("", 21), make_opsetid("ai.onnx.ml", 3)]
    model = ("TreeEnsembleRegressor", [x], [TensorProto.FLOAT])
    return runner(*model, domain="ai.onnx.ml", opsets=opsets, n_targets=targets, **attributes, **more)[0]


@pytest.mark.parametrize("with_missing", [False, True])
@pytest.mark.parametrize("targets, votes", [(1, 1), (3, 1), (3, 2), (3, 3)])
@pytest.mark.parametrize("modes", [*[[mode] for mode in MODES], MODES], ids=lambda modes: "-".join(modes))
def test_tree_modes(modes, targets, votes, with_missing):
    rng = np.random.default_rng(1)
    attributes = node_list(rng, targets=targets, votes=votes, modes=modes)
    x = features(rng, 37, with_missing)
    y = kernels.tree_ensemble(torch.from_numpy(x), ensemble_of(attributes, targets))
    assert y.dtype == torch.float32
    np.testing.assert_allclose(y.numpy(), regressor(run_reference, x, attributes, targets), rtol=1e-5, atol=1e-6)
    # NaN is unequal to a number for onnxruntime, whatever nodes_missing_value_tracks_true says.
    if not (with_missing and "BRANCH_NEQ" in modes):
        np.testing.assert_allclose(y.numpy(), regressor(run_onnxruntime, x, attributes, targets), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("base_values", [(), (1.5, -2.0, 0.25)])
@pytest.mark.parametrize("targets, votes", [(1, 1), (3, 1), (3, 3)])
@pytest.mark.parametrize("trees", [1, 7])
def test_tree_aggregates(aggregate, base_values, targets, votes, trees):
    rng = np.random.default_rng(2)
    attributes = node_list(rng, trees=trees, targets=targets, votes=votes)
    x = features(rng, 21)
    base_values = base_values[:targets]
    y = kernels.tree_ensemble(torch.from_numpy(x), ensemble_of(attributes, targets, aggregate, base_values)).numpy()
    more = {"aggregate_function": aggregate} | ({"base_values": base_values} if base_values else {})
    # A target that no leaf votes for loses its base value in onnxruntime, and gets the largest or the smallest number
    # in the reference implementation.
    if votes == targets or not base_values:
        np.testing.assert_allclose(y, regressor(run_onnxruntime, x, attributes, targets, **more), rtol=1e-5, atol=1e-6)
    if votes == targets or aggregate in ("SUM", "AVERAGE"):
        np.testing.assert_allclose(y, regressor(run_reference, x, attributes, targets, **more), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 128, 129, 1000])
@pytest.mark.parametrize("trees", [1, 8, 300])
@pytest.mark.parametrize("targets", [1, 3])
def test_trees_for_any_number_of_rows(rows, trees, targets):
    rng = np.random.default_rng(3)
    attributes = node_list(rng, trees=trees, depth=4, targets=targets, modes=["BRANCH_LT"])
    ensemble = ensemble_of(attributes, targets, dtype=torch.float64)
    x = torch.from_numpy(features(rng, 1000, with_missing=True))
    together = kernels.tree_ensemble(x[:rows], ensemble)
    assert together.shape == (rows, targets) and together.dtype == torch.float64
    one_by_one = [kernels.tree_ensemble(x[i], ensemble) for i in range(0, rows, 13)]
    if rows:
        torch.testing.assert_close(together[::13], torch.cat(one_by_one))


def test_trees_run_on_several_threads():
    rng = np.random.default_rng(4)
    attributes = node_list(rng, trees=100, depth=8, targets=1)
    ensemble = ensemble_of(attributes, 1, dtype=torch.float64)
    x = torch.from_numpy(features(rng, 3000))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = kernels.tree_ensemble(x, ensemble)
        torch.set_num_threads(3)
        for rows in 3000, 100, 5:
            torch.testing.assert_close(kernels.tree_ensemble(x[:rows], ensemble), alone[:rows])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_trees_over_other_types(dtype):
    rng = np.random.default_rng(5)
    attributes = node_list(rng)
    x = features(rng, 20, dtype=dtype)
    y = kernels.tree_ensemble(torch.from_numpy(x), ensemble_of(attributes, 3, dtype=torch.float64))
    expected = regressor(run_onnxruntime, x.astype(np.float32), attributes, 3)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_trees_compare_doubles_as_doubles():
    leaf = {"nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [1 / 3, 0, 0]}
    attributes = node_list(np.random.default_rng(0), trees=1, depth=1, targets=1) | leaf
    attributes |= {"nodes_featureids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "target_nodeids": [1, 2]}
    attributes |= {"target_weights": [1.0, 0.0], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0]}
    x = torch.tensor([[np.nextafter(1 / 3, 1)], [1 / 3]], dtype=torch.float64)
    assert kernels.tree_ensemble(x, ensemble_of(attributes, 1, dtype=torch.float64)).tolist() == [[0], [1]]
    assert kernels.tree_ensemble(x, ensemble_of(attributes, 1, dtype=torch.float32)).tolist() == [[1], [1]]


def test_trees_over_strided_rows():
    rng = np.random.default_rng(6)
    ensemble = ensemble_of(node_list(rng), 3)
    x = torch.from_numpy(features(rng, 20))
    torch.testing.assert_close(kernels.tree_ensemble(x.T.contiguous().T, ensemble), kernels.tree_ensemble(x, ensemble))


def test_trees_are_saved(tmp_path):
    rng = np.random.default_rng(7)
    x = torch.from_numpy(features(rng, 20, with_missing=True))
    ensemble = ensemble_of(node_list(rng, modes=MODES), 3, "AVERAGE", (1.0, 2.0, 3.0))
    loaded = saved_and_loaded(ensemble, tmp_path)
    torch.testing.assert_close(kernels.tree_ensemble(x, loaded), kernels.tree_ensemble(x, ensemble))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"nodes_modes": ["LEAF", "LEAF", "BRANCH"]}, "'BRANCH' is not a mode"),
        ({"nodes_nodeids": [0, 1, 1]}, "node 1 of tree 0 appears twice"),
        ({"nodes_truenodeids": [5, 0, 0]}, "tree 0 has no node 5"),
        ({"nodes_truenodeids": [0, 0, 0]}, "lead round in a circle"),
        ({"nodes_values": [0.0]}, "differ in length"),
        ({"nodes_featureids": [-1, 0, 0]}, "looks at feature -1"),
        ({"nodes_featureids": [9, 0, 0]}, "looks at 10 features, and is given 5"),
        ({"target_ids": [0, 1]}, "votes for target 1 of 1"),
        ({"target_weights": [0.0]}, "1 weights for 2 votes"),
        ({"target_nodeids": [1, 9]}, "tree 0 has no node 9"),
    ],
)
def test_broken_trees_are_refused(change, message):
    stump = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.0, 0.0, 0.0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
    }
    assert kernels.tree_ensemble(torch.tensor([[-1.0], [1.0]]), ensemble_of(stump, 1)).tolist() == [[1], [2]]
    with pytest.raises(ValueError, match=message):
        kernels.tree_ensemble(torch.zeros(1, FEATURES), ensemble_of(stump | change, 1))


def test_trees_refuse_other_aggregates_ranks_and_base_values():
    attributes = node_list(np.random.default_rng(0))
    with pytest.raises(ValueError, match="not 'MEAN'"):
        ensemble_of(attributes, 3, "MEAN")
    with pytest.raises(ValueError, match="2 base_values for 3 targets"):
        ensemble_of(attributes, 3, base_values=(1.0, 2.0))
    with pytest.raises(ValueError, match=r"shape \[N, F\], not \[1, 2, 3\]"):
        kernels.tree_ensemble(torch.zeros(1, 2, 3), ensemble_of(attributes, 3))


# ---- TreeEnsemble-5


def branches(rng, trees=6, depth=4, targets=3, modes=range(7), numbers=np.float32):
    """Makes the attributes of a TreeEnsemble of random, uneven trees over small whole numbers."""
    rows, leaves, roots, sets = [], [], [], {}

    def grow(level):
        if level == depth or (level > 0 and rng.random() < 0.2):
            leaves.append((float(rng.normal()), int(rng.integers(targets))))
            return len(leaves) - 1, 1
        row = len(rows)
        mode = int(rng.choice(modes))
        rows.append(None)
        if mode == 6:
            sets[row] = (1 + rng.choice(5, rng.integers(1, 5), replace=False)).tolist()
        (true, true_leaf), (false, false_leaf) = grow(level + 1), grow(level + 1)
        feature, split, missing = rng.integers(FEATURES), rng.integers(5), rng.integers(2)
        rows[row] = tuple(map(int, (mode, feature, split, true, true_leaf, false, false_leaf, missing)))
        return row, 0

    for _ in range(trees):
        roots.append(grow(0)[0])
    names = "modes featureids splits truenodeids trueleafs falsenodeids falseleafs missing_value_tracks_true"
    columns = map(list, zip(*rows, strict=True))
    attributes = {f"nodes_{name}": column for name, column in zip(names.split(), columns, strict=True)}
    attributes["tree_roots"] = roots
    attributes["leaf_weights"], attributes["leaf_targetids"] = map(list, zip(*leaves, strict=False))
    # The reference implementation reads the sets as it goes down, which here is the order of the nodes.
    attributes["membership_values"] = [v for row in sorted(sets) for v in (*sets[row], float("nan"))]
    return attributes


def tree_ensemble_5(attributes, targets, aggregate="SUM", dtype=torch.float32):
    def of(name, tensor_type=None):
        values = attributes.get(name, [])
        return values if tensor_type is None else torch.tensor(values, dtype=tensor_type)

    float_names = ["nodes_splits", "membership_values", "leaf_weights"]
    int_names = "nodes_featureids nodes_truenodeids nodes_trueleafs nodes_falsenodeids nodes_falseleafs"
    int_names += " nodes_missing_value_tracks_true tree_roots leaf_targetids"
    return classes.TreeEnsemble.from_tree_ensemble(
        of("nodes_modes", torch.uint8),
        *[of(name, torch.float64) for name in float_names],
        *[of(name) for name in int_names.split()],
        targets,
        aggregate,
        dtype,
    )


def run_tree_ensemble_5(runner, x, attributes, targets, aggregate="SUM"):
    tensor_type = np_dtype_to_tensor_dtype(x.dtype)
    attributes = {name: values for name, values in attributes.items() if values}
    for name in "nodes_splits", "membership_values", "leaf_weights":
        if name in attributes:
            attributes[name] = make_tensor(name, tensor_type, [len(attributes[name])], attributes[name])
    modes = attributes["nodes_modes"]
    attributes["nodes_modes"] = make_tensor("modes", TensorProto.UINT8, [len(modes)], modes)
    attributes["aggregate_function"] = ["AVERAGE", "SUM", "MIN", "MAX"].index(aggregate)
    model = ("TreeEnsemble", [x], [tensor_type])
    return runner(*model, domain="ai.onnx.ml", opsets=OPSET_23, n_targets=targets, **attributes)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("with_missing", [False, True])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("modes", [*[[m] for m in range(7)], range(7)], ids=str)
def test_tree_ensemble_5(modes, aggregate, with_missing, dtype):
    rng = np.random.default_rng(8)
    attributes = branches(rng, modes=modes, numbers=dtype)
    x = features(rng, 37, with_missing, dtype)
    ensemble = tree_ensemble_5(attributes, 3, aggregate, getattr(torch, np.dtype(dtype).name))
    y = kernels.tree_ensemble(torch.from_numpy(x), ensemble).numpy()
    assert y.dtype == dtype
    # NaN is unequal to a number for both others, whatever nodes_missing_value_tracks_true says.
    if with_missing and 5 in modes:
        return
    if aggregate in ("SUM", "AVERAGE"):
        expected = run_tree_ensemble_5(run_reference, x, attributes, 3, aggregate)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    expected = run_tree_ensemble_5(run_onnxruntime, x, attributes, 3, aggregate)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_missing_values_follow_their_flag_at_every_mode():
    for mode in range(7):
        for tracks_true in 0, 1:
            one_branch = {
                "nodes_modes": [mode],
                "nodes_featureids": [0],
                "nodes_splits": [1.0],
                "nodes_truenodeids": [1],
                "nodes_trueleafs": [1],
                "nodes_falsenodeids": [0],
                "nodes_falseleafs": [1],
                "nodes_missing_value_tracks_true": [tracks_true],
                "tree_roots": [0],
                "leaf_targetids": [0, 0],
                "leaf_weights": [0.0, 1.0],
                "membership_values": [1.0, float("nan")] if mode == 6 else [],
            }
            x = torch.tensor([[float("nan")], [1.0]])
            y = kernels.tree_ensemble(x, tree_ensemble_5(one_branch, 1))
            assert y.tolist() == [[tracks_true], [float(mode in (0, 2, 4, 6))]]


def test_a_tree_may_be_one_leaf_and_branches_may_share_a_child():
    # x == 1 and x == 2 lead to the same branch, as for the values of a category; the second tree is a leaf.
    shared = {
        "nodes_modes": [4, 4, 0, 0],
        "nodes_featureids": [0, 0, 1, 0],
        "nodes_splits": [1.0, 2.0, 0.0, 0.0],
        "nodes_truenodeids": [2, 2, 0, 3],
        "nodes_trueleafs": [0, 0, 1, 1],
        "nodes_falsenodeids": [1, 2, 1, 3],
        "nodes_falseleafs": [0, 1, 1, 1],
        "tree_roots": [0, 3],
        "leaf_targetids": [0, 0, 0, 0],
        "leaf_weights": [1.0, 2.0, 4.0, 100.0],
    }
    x = torch.tensor([[1.0, -1], [1, 1], [2, -1], [2, 1], [3, -1], [3, 1]])
    y = kernels.tree_ensemble(x, tree_ensemble_5(shared, 1))
    assert y.tolist() == [[101], [102], [101], [102], [104], [104]]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"nodes_modes": [9]}, "unknown mode 9"),
        ({"nodes_truenodeids": [7]}, "no node 8"),
        ({"tree_roots": [5]}, "no node 5"),
        ({"nodes_splits": []}, "differ in length"),
        ({"membership_values": [1.0, float("nan")]}, "1 sets of members for 0 BRANCH_MEMBER nodes"),
        ({"leaf_targetids": [0, 3]}, "votes for target 3 of 1"),
    ],
)
def test_broken_tree_ensembles_are_refused(change, message):
    one_branch = {
        "nodes_modes": [0],
        "nodes_featureids": [0],
        "nodes_splits": [1.0],
        "nodes_truenodeids": [1],
        "nodes_trueleafs": [1],
        "nodes_falsenodeids": [0],
        "nodes_falseleafs": [1],
        "tree_roots": [0],
        "leaf_targetids": [0, 0],
        "leaf_weights": [0.0, 1.0],
    }
    with pytest.raises(ValueError, match=message):
        tree_ensemble_5(one_branch | change, 1)


# ---- multiclass_probability


def coupled(r):
    """Solves for the p of sum 1 that minimises the sum of (r[j, i] p[i] - r[i, j] p[j]) ** 2, which the kernel iterates
    towards.

    The reference implementation's own routine adds up what it should not, from three classes on.
    """
    q = -r.T * r
    np.fill_diagonal(q, (r**2).sum(0) - np.diag(r) ** 2)
    classes = len(r)
    system = np.block([[q, np.ones((classes, 1))], [np.ones((1, classes)), np.zeros((1, 1))]])
    return np.linalg.solve(system, np.append(np.zeros(classes), 1))[:classes]


def iterated(r):
    """Iterates as libsvm does, from equal probabilities until none of the gradients is far from their mean."""
    classes = len(r)
    q = -r.T * r
    np.fill_diagonal(q, (r**2).sum(0) - np.diag(r) ** 2)
    p = np.full(classes, 1 / classes)
    for _ in range(max(100, classes)):
        gradient = q @ p
        mean = p @ gradient
        if np.abs(gradient - mean).max() < 0.005 / classes:
            break
        for i in range(classes):
            step = (mean - gradient[i]) / q[i, i]
            p[i] += step
            mean = (mean + step * (step * q[i, i] + 2 * gradient[i])) / (1 + step) ** 2
            gradient = (gradient + step * q[i]) / (1 + step)
            p /= 1 + step
    return p


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_multiclass_probability(classes, dtype):
    rng = np.random.default_rng(9)
    pairs = rng.uniform(1e-7, 1 - 1e-7, (100, classes, classes)).astype(dtype)
    pairs = np.triu(pairs, 1) + np.tril(1 - pairs.transpose(0, 2, 1), -1).astype(dtype)
    p = kernels.multiclass_probability(torch.from_numpy(pairs))
    assert p.dtype == getattr(torch, np.dtype(dtype).name)
    wide = pairs.astype(np.float64)
    np.testing.assert_allclose(p.numpy(), [iterated(r) for r in wide], rtol=0, atol=8 * np.finfo(dtype).eps)
    # The iteration ends where the gradients are near to their mean, and p may be further from its end.
    np.testing.assert_allclose(p.numpy(), [coupled(r) for r in wide], rtol=0, atol=0.01)
    np.testing.assert_allclose(p.sum(1), 1, rtol=16 * np.finfo(dtype).eps)


def test_multiclass_probability_of_nothing_and_of_other_shapes():
    assert kernels.multiclass_probability(torch.zeros(0, 3, 3)).shape == (0, 3)
    with pytest.raises(ValueError, match=r"\[N, C, C\], not \[2, 3, 4\]"):
        kernels.multiclass_probability(torch.zeros(2, 3, 4))


# ---- find_keys, map_keys

KEY_TYPES = [torch.int64, torch.int32, torch.int16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", KEY_TYPES)
@pytest.mark.parametrize("keys", [[], [3], [1, 2, 5], [5, -1, 3], [4, 4, 1, 4, 1]])
@pytest.mark.parametrize("shape", [(), (0,), (12,), (3, 4), (2, 0)])
def test_find_keys(keys, dtype, shape):
    x = torch.arange(-2, 10)[: np.prod(shape, dtype=int)].reshape(shape).to(dtype)
    last = {key: i for i, key in enumerate(keys)}
    expected = [last.get(int(v), -1) for v in x.ravel()]
    found = kernels.find_keys(x, torch.tensor(keys, dtype=dtype))
    assert found.shape == shape and found.dtype == torch.int64
    assert found.ravel().tolist() == expected


def test_find_keys_of_a_strided_tensor_and_of_many_elements():
    x = torch.arange(20_000).reshape(2, -1)
    keys = torch.arange(19_999, 9_999, -1)
    expected = torch.where(x >= 10_000, 19_999 - x, -1)
    torch.testing.assert_close(kernels.find_keys(x, keys), expected)
    torch.testing.assert_close(kernels.find_keys(x.T, keys), expected.T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("keys", [[1.0, float("nan"), 2.0], [1.0, 2.0, float("nan")]])
def test_nan_is_a_key(keys, dtype):
    x = torch.tensor([float("nan"), -float("nan"), 2.0, float("inf"), -0.0], dtype=dtype)
    nan = next(i for i, key in enumerate(keys) if key != key)
    assert kernels.find_keys(x, torch.tensor(keys, dtype=dtype)).tolist() == [nan, nan, keys.index(2.0), -1, -1]
    assert kernels.find_keys(x[:1], torch.tensor([1.0], dtype=dtype)).tolist() == [-1]
    assert kernels.find_keys(x[-1:], torch.tensor([0.0], dtype=dtype)).tolist() == [0]


@pytest.mark.parametrize("value_type", [torch.int64, torch.float32, torch.float64, torch.int16])
@pytest.mark.parametrize("key_type", KEY_TYPES)
def test_map_keys(key_type, value_type):
    x = torch.tensor([[1, 7], [3, 2]], dtype=key_type)
    keys, values = torch.tensor([3, 1, 2], dtype=key_type), torch.tensor([30, 10, 20], dtype=value_type)
    for default in torch.tensor(-1, dtype=value_type), torch.tensor([-1], dtype=value_type):
        y = kernels.map_keys(x, keys, values, default)
        assert y.dtype == value_type and y.tolist() == [[10, -1], [30, 20]]


def test_map_keys_as_label_encoder():
    rng = np.random.default_rng(10)
    keys, values = rng.permutation(50)[:20].astype(np.float32), rng.normal(size=20).astype(np.float32)
    keys[3] = np.nan
    x = np.append(rng.integers(0, 50, 100), np.nan).astype(np.float32)
    attributes = {"keys_floats": keys.tolist(), "values_floats": values.tolist(), "default_float": 0.5}
    model = ("LabelEncoder", [x], [TensorProto.FLOAT])
    (expected,) = run_onnxruntime(*model, domain="ai.onnx.ml", opsets=OPSET_23, **attributes)
    y = kernels.map_keys(*map(torch.from_numpy, (x, keys, values)), torch.tensor(0.5))
    np.testing.assert_array_equal(y.numpy(), expected)


def test_keys_and_values_are_checked():
    x, one, two = torch.zeros(1), torch.zeros(1), torch.zeros(2)
    with pytest.raises(ValueError, match="1 keys for 2 values"):
        kernels.map_keys(x, one, two, one)
    with pytest.raises(ValueError, match="2 default values"):
        kernels.map_keys(x, one, one, two)
    with pytest.raises(TypeError, match="looks for Float among keys of Long"):
        kernels.find_keys(x, one.long())
    with pytest.raises(ValueError, match=r"shape \[K\], not \[\]"):
        kernels.find_keys(x, torch.tensor(0.0))
