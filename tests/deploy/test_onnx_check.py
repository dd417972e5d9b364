"""What was hashed is what runs: a network's data are in its file, and it needs little time and memory."""

import json
import subprocess
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from body_transformer.deploy import onnx_check, session
from body_transformer.deploy.onnx_check import check_onnx
from body_transformer.deploy.onnx_file import to_onnx
from body_transformer.deploy.policy import OnnxPolicy
from body_transformer.deploy.session import open_session, try_session
from body_transformer.model.variants import VARIANTS

from .conftest import make_policy

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
TensorProto, helper = onnx.TensorProto, onnx.helper
FLOAT = TensorProto.FLOAT
OBS, ACTIONS = 48, 12


def tensor(name: str, value: np.ndarray) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(value, name)


def outside(value: np.ndarray, file: str, name: str = "w") -> onnx.TensorProto:
    """Return a tensor whose data are in another file."""
    found = TensorProto(name=name, data_type=FLOAT, dims=value.shape, data_location=TensorProto.EXTERNAL)
    for key, text in (("location", file), ("offset", "0"), ("length", str(value.nbytes))):
        found.external_data.add(key=key, value=text)
    return found


def graph(nodes: list, tensors: tuple = (), num_actions: int = ACTIONS) -> onnx.GraphProto:
    obs = helper.make_tensor_value_info("obs", FLOAT, ["batch", OBS])
    actions = helper.make_tensor_value_info("actions", FLOAT, ["batch", num_actions])
    return helper.make_graph(nodes, "policy", [obs], [actions], list(tensors))


def model(nodes: list, tensors: tuple = (), num_actions: int = ACTIONS, **parts) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph(nodes, tensors, num_actions), opset_imports=opsets, ir_version=9, **parts)


WEIGHT = tensor("w", np.ones((OBS, ACTIONS), np.float32))
PRODUCT = helper.make_node("MatMul", ["obs", "w"], ["actions"])


def refusal(content: onnx.ModelProto | bytes) -> str:
    data = content if isinstance(content, bytes) else content.SerializeToString()
    with pytest.raises(ValueError, match=r"^policy.onnx in 'a1' is refused: ") as refused:
        check_onnx(data, "a1")
    assert "\n" not in str(refused.value)
    return str(refused.value).partition("refused: ")[2]


def with_content(folder: Path, content: bytes) -> Path:
    """Make this the network of an export, with its hash, as an attacker would."""
    (folder / "policy.onnx").write_bytes(content)
    about = json.loads((folder / "policy.json").read_text())
    about["model_sha256"] = sha256(content).hexdigest()
    (folder / "policy.json").write_text(json.dumps(about))
    return folder


# -- data outside the file ---------------------------------------------------------------------------------------------


def test_weights_in_another_file_would_change_a_running_session_and_are_refused(copy, tmp_path, monkeypatch):
    """The attack: the hash covers policy.onnx, and the file beside it is overwritten while the session runs."""
    monkeypatch.chdir(tmp_path)  # ONNX Runtime looks for the file in the current folder
    bias = np.ones((1, 4096), np.float32)
    bias.tofile("weights.bin")
    wide = tensor("wide", np.zeros((OBS, 4096), np.float32))
    nodes = [helper.make_node("MatMul", ["obs", "wide"], ["x"]), helper.make_node("Add", ["x", "w"], ["actions"])]
    content = model(nodes, (wide, outside(bias, "weights.bin")), 4096).SerializeToString()

    running = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    obs = np.zeros((1, OBS), np.float32)
    before = running.run(None, {"obs": obs})[0].copy()
    with open("weights.bin", "r+b") as file:
        file.write((9 * bias).tobytes())
    assert (running.run(None, {"obs": obs})[0] != before).any()

    with pytest.raises(ValueError, match="data are in another file"):
        open_session(content, "a1")
    with pytest.raises(ValueError, match="data are in another file"):
        OnnxPolicy(with_content(copy, content))


HIDDEN = outside(np.ones((OBS, ACTIONS), np.float32), "weights.bin")
SPARSE = onnx.SparseTensorProto(values=outside(np.ones(1, np.float32), "weights.bin"), dims=[OBS, ACTIONS])
INNER = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "inner", [], [], [HIDDEN])


def with_attribute(**attribute) -> onnx.ModelProto:
    """Return a model with a constant whose value is given by this attribute."""
    made = onnx.AttributeProto(name="value", **attribute)
    node = helper.make_node("Constant", [], ["w"])
    node.attribute.append(made)
    return model([node, PRODUCT])


def with_function() -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["y"], value=HIDDEN)
    function = helper.make_function("mine", "Weight", [], ["y"], [constant], [helper.make_opsetid("", 20)])
    return model([PRODUCT], (WEIGHT,), functions=[function])


def with_training() -> onnx.ModelProto:
    found = model([PRODUCT], (WEIGHT,))
    found.training_info.add().algorithm.CopyFrom(INNER)
    return found


def with_sparse() -> onnx.ModelProto:
    found = model([PRODUCT])
    found.graph.sparse_initializer.append(SPARSE)
    return found


OUTSIDE = {
    "an initialiser": (lambda: model([PRODUCT], (HIDDEN,)), "external_data"),
    "a sparse initialiser": (with_sparse, "sparse"),
    "a constant": (lambda: with_attribute(type=onnx.AttributeProto.TENSOR, t=HIDDEN), "external_data"),
    "a list of tensors": (lambda: with_attribute(type=onnx.AttributeProto.TENSORS, tensors=[HIDDEN]), "tensors"),
    "a sparse constant": (
        lambda: with_attribute(type=onnx.AttributeProto.SPARSE_TENSOR, sparse_tensor=SPARSE),
        "sparse",
    ),
    "sparse constants": (
        lambda: with_attribute(type=onnx.AttributeProto.SPARSE_TENSORS, sparse_tensors=[SPARSE]),
        "sparse",
    ),
    "a subgraph": (lambda: with_attribute(type=onnx.AttributeProto.GRAPH, g=INNER), "subgraph"),
    "a list of subgraphs": (lambda: with_attribute(type=onnx.AttributeProto.GRAPHS, graphs=[INNER]), "subgraph"),
    "a function": (with_function, "function"),
    "training information": (with_training, "training"),
}


@pytest.mark.parametrize("place", OUTSIDE)
def test_data_in_another_file_are_refused_in_every_place(place):
    make, word = OUTSIDE[place]
    assert word in refusal(make())


def test_only_the_location_without_the_file_is_refused_too():
    bare = TensorProto(name="w", data_type=FLOAT, dims=[OBS, ACTIONS], data_location=TensorProto.EXTERNAL)
    assert "data_location" in refusal(model([PRODUCT], (bare,)))


def test_a_field_given_twice_is_checked_twice():
    """The format merges messages that are given twice."""
    good, bad = model([PRODUCT], (WEIGHT,)), onnx.ModelProto()
    bad.graph.initializer.append(HIDDEN)
    assert "external_data" in refusal(good.SerializeToString() + bad.SerializeToString())


def test_a_file_that_is_also_in_onnx_runtimes_own_format_is_read_as_onnx():
    """That format, with `ORTM` in its fifth to eighth byte, is not checked."""
    content = b"\x12\x06" + b"xxORTM" + model([PRODUCT], (WEIGHT,)).SerializeToString()
    assert content[4:8] == b"ORTM"
    with pytest.raises(Exception, match=r"ORT|flatbuffer|[Vv]erif"):
        ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    run = open_session(content, "a1")
    assert run.run(None, {"obs": np.ones((1, OBS), np.float32)})[0].tolist() == [[float(OBS)] * ACTIONS]


def test_metadata_which_could_hold_settings_of_onnx_runtime_are_refused():
    found = model([PRODUCT], (WEIGHT,))
    helper.set_model_props(found, {"ort_config": "{}"})
    assert "metadata" in refusal(found)


# -- loops, memory and time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Loop", "Scan", "If", "Range", "RandomNormal", "NonZero", "SequenceMap", "\x1b[2J"])
def test_an_operator_that_no_policy_has_is_refused(name):
    said = refusal(model([helper.make_node(name, ["obs"], ["actions"])]))
    assert "may not have the operator" in said
    assert "'Add'" in said
    assert said.isprintable()


def test_an_operator_of_another_domain_is_refused():
    assert "'com.microsoft'" in refusal(model([helper.make_node("MatMul", ["obs"], ["a"], domain="com.microsoft")]))


def test_a_shape_that_depends_on_the_observation_is_refused():
    expand = helper.make_node("Expand", ["one", "obs"], ["actions"])
    assert "shape depends on the observation" in refusal(model([expand], (tensor("one", np.ones(1, np.float32)),)))

    zeros = helper.make_node("ConstantOfShape", ["obs"], ["actions"])
    assert "shape depends on the observation" in refusal(model([zeros]))


def test_a_tensor_with_the_name_of_an_input_is_no_constant():
    nodes = [
        helper.make_node("Cast", ["obs"], ["number"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["number", "all"], ["size"]),
        helper.make_node("ConstantOfShape", ["size"], ["many"]),
        helper.make_node("ReduceMean", ["many"], ["mean"], keepdims=0),
        helper.make_node("Add", ["obs", "mean"], ["actions"]),
    ]
    whole = tensor("all", np.array([-1], np.int64))
    default = tensor("obs", np.zeros((1, OBS), np.float32))  # it holds only if no observation is given
    assert "same name" in refusal(model(nodes, (whole, default)))
    assert "depends on the observation" in refusal(model(nodes, (whole,)))
    twice = b"\x42\x03obs" + tensor("other", np.zeros(1, np.float32)).SerializeToString()  # ONNX takes the last name
    graph_part = b"\x2a" + bytes([len(twice)]) + twice
    data = model(nodes, (whole,)).SerializeToString() + b"\x3a" + bytes([len(graph_part)]) + graph_part
    assert [one.name for one in onnx.ModelProto.FromString(data).graph.initializer] == ["all", "other"]
    assert "no name, or two" in refusal(data)


def test_an_input_that_a_reader_of_protobuf_would_skip_is_refused():
    """A number in the place of a name would hide which input decides the shape."""
    node = onnx.NodeProto(op_type="Expand", output=["actions"]).SerializeToString()
    names = [b"\x0a\x03one", b"\x08\x41", b"\x0a\x03obs"]  # the input A is a number
    found = model([], (tensor("one", np.ones(1, np.float32)), tensor("A", np.ones(1, np.int64))))
    found.graph.node.add().ParseFromString(node + b"".join(names))
    assert list(found.graph.node[0].input) == ["one", "obs"]
    assert "input is a number" in refusal(found)


def test_a_shape_computed_from_constants_is_accepted():
    nodes = [
        helper.make_node("Identity", ["s"], ["same"]),
        helper.make_node("MatMul", ["obs", "w"], ["x"]),
        helper.make_node("Reshape", ["x", "same"], ["actions"]),
    ]
    check_onnx(model(nodes, (WEIGHT, tensor("s", np.array([-1, ACTIONS])))).SerializeToString(), "a1")


def large(num: int) -> bytes:
    """Return a small file whose network needs a matrix of num x num numbers."""
    nodes = [
        helper.make_node("Slice", ["obs", "zero", "one", "one"], ["x"]),
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("Expand", ["x", "turned"], ["high"]),
        helper.make_node("MatMul", ["high", "wide"], ["square"]),
        helper.make_node("ReduceMean", ["square", "both"], ["mean"], keepdims=1),
        helper.make_node("Expand", ["mean", "few"], ["actions"]),
    ]
    shapes = {"zero": [0], "one": [1], "shape": [1, num], "turned": [num, 1], "both": [0, 1], "few": [1, ACTIONS]}
    return model(nodes, tuple(tensor(name, np.array(value)) for name, value in shapes.items())).SerializeToString()


def test_a_network_that_needs_absurd_memory_is_refused_in_another_process(copy):
    content = large(40_000)  # 6.4 GB
    assert len(content) < 1000
    check_onnx(content, "a1")
    with pytest.raises(
        ValueError, match=r"is refused: loading it and computing an action fails within .* 2 GiB"
    ) as why:
        OnnxPolicy(with_content(copy, content))
    assert "\n" not in str(why.value)


def test_a_network_that_needs_too_much_time_is_refused(monkeypatch):
    content = large(20_000)  # 1.6 GB, and a second or more
    monkeypatch.setattr(session, "TRIAL_S", 0.5)
    with pytest.raises(ValueError, match=r"^policy.onnx in 'a1' is refused: .* takes more than 0.5 s$"):
        try_session(content, "a1", OBS)


def test_a_network_whose_every_action_is_slow_is_refused(monkeypatch):
    monkeypatch.setattr(session, "ACTION_S", 0.001)
    with pytest.raises(
        ValueError, match=r"^policy.onnx in 'a1' is refused: an action takes \d+\.\d s, allowed is 0.001$"
    ):
        try_session(large(3_000), "a1", OBS)


def test_a_network_is_tried_once_per_program(monkeypatch):
    content = model([PRODUCT], (WEIGHT,)).SerializeToString()
    calls, run = [], subprocess.run
    monkeypatch.setattr(session.subprocess, "run", lambda *args, **given: calls.append(args) or run(*args, **given))
    monkeypatch.setattr(session, "_tried", set())
    for _ in range(2):
        try_session(content, "a1", OBS)
    assert len(calls) == 1


def test_a_network_that_onnx_runtime_cannot_load_is_refused_in_one_printable_line():
    nodes = [helper.make_node("MatMul", ["obs", "gone\x1b[2J"], ["actions"])]
    content = model(nodes).SerializeToString()
    for attempt in (lambda: open_session(content, "a1"), lambda: try_session(content, "a1", OBS)):
        with pytest.raises(ValueError, match=r"^ONNX Runtime cannot load policy.onnx in 'a1': ") as why:
            attempt()
        assert str(why.value).isprintable()


def test_a_file_beyond_the_limit_is_not_read(copy, monkeypatch):
    monkeypatch.setattr("body_transformer.deploy.contract.MAX_BYTES", 10_000)
    with pytest.raises(ValueError, match=r"policy.onnx' has [\d,]+ bytes; a file of an export may have at most 10,000"):
        OnnxPolicy(copy)


# -- damaged files -----------------------------------------------------------------------------------------------------

GOOD = model([PRODUCT], (WEIGHT,)).SerializeToString()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        b"text",
        b"\xff" * 20,
        GOOD[:-1],
        GOOD + b"\x3a",
        GOOD + b"\x3a\xff\xff\xff\xff\x7f",
        GOOD + b"\x38\x01",
        GOOD + b"\x3b\x3c",
        b"\x7aPK" + GOOD,
    ],
)
def test_a_damaged_file_is_refused(content):
    assert refusal(content)


def test_a_file_of_countless_fields_is_refused(monkeypatch):
    monkeypatch.setattr(onnx_check, "MAX_FIELDS", 1000)
    assert "more than 1000 fields" in refusal(GOOD + b"\x08\x09" * 1000)


def test_changed_bytes_end_in_success_or_one_sentence():
    rng = np.random.default_rng(0)
    for _ in range(3000):
        data = bytearray(GOOD[: rng.integers(1, len(GOOD) + 1)] if rng.random() < 0.3 else GOOD)
        for place in rng.integers(0, min(len(data), 300), size=rng.integers(1, 5)):
            data[place] = rng.integers(256)
        with suppress(ValueError):
            check_onnx(bytes(data), "a1")


# -- exports -----------------------------------------------------------------------------------------------------------


OTHERS = {"num_heads": 4, "activation": "gelu", "norm": "pre"}


@pytest.mark.parametrize("changes", [{}, OTHERS], ids=["usual", "gelu, pre-norm"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_accepted(variant, changes):
    check_onnx(to_onnx(make_policy(variant=variant, **changes)), "a1")


@pytest.mark.parametrize("changes", [{}, OTHERS], ids=["usual", "gelu, pre-norm"])
def test_the_other_exporters_file_is_accepted(changes):
    pytest.importorskip("onnxscript")
    check_onnx(to_onnx(make_policy(**changes), "dynamo"), "a1")


def test_the_check_needs_neither_onnx_nor_protobuf(folder):
    code = f"""
import sys
sys.modules["onnx"] = sys.modules["google"] = None
from pathlib import Path
from body_transformer.deploy.onnx_check import check_onnx
check_onnx(Path({str(folder)!r}, "policy.onnx").read_bytes(), "a1")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
