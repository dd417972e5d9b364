"""From a policy to a folder for a robot: every experiment, every variant, both exporters."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from body_transformer import Layout, Policy, Term, files, pretrained
from body_transformer.cli.main import main
from body_transformer.deploy import export as export_module
from body_transformer.deploy import onnx_file
from body_transformer.deploy import rewrite as rewrite_module
from body_transformer.deploy.contract import Contract
from body_transformer.deploy.export import LARGE, Trained, check_vectors, export, find_trained
from body_transformer.deploy.onnx_file import to_onnx
from body_transformer.deploy.policy import TOLERANCE, OnnxPolicy, check_agreement, deviation
from body_transformer.deploy.rewrite import rewritten
from body_transformer.deploy.session import open_session
from body_transformer.experiment import experiment_names, load_experiment
from body_transformer.model.variants import VARIANTS

from .conftest import make_policy, make_run

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

FILES = ["policy.json", "policy.onnx", "policy.safetensors", "robot.xml"]
OPTIONS = {
    **{variant: {"variant": variant} for variant in VARIANTS},
    "every option": {
        "variant": "bot-mix",
        "shared_tokenizer": True,
        "norm": "pre",
        "activation": "gelu",
        "squash": "tanh",
        "obs_clip": 5.0,
        "positional_encoding": False,
    },
    "mlp, shared, clipped": {"variant": "mlp", "shared_tokenizer": True, "obs_clip": 2.0, "squash": "none"},
    "fixed std": {"variant": "bot-hard", "std": "fixed", "head": "gaussian"},
    "deterministic": {"variant": "transformer", "head": "deterministic", "squash": "none"},
    "many heads": {"variant": "bot-mix", "num_heads": 4},
    "many heads, soft, pre-norm": {"variant": "bot-soft", "num_heads": 4, "norm": "pre"},
    "one head": {"variant": "bot-hard", "num_heads": 1, "activation": "gelu"},
}


def some_obs(policy: Policy, num: int = 64) -> torch.Tensor:
    """Return random and extreme observations: zero, at and beyond the clip, large, denormal."""
    shift, scale = policy.normalizer.shift, policy.normalizer.scale
    noise = torch.randn(num, policy.obs_dim, generator=torch.Generator().manual_seed(7))
    clip = policy.normalizer.clip or 5.0
    edges = [shift * 0, shift, *(shift + side * clip * scale for side in (-1, 1, -1.001, 1.001)), shift * 0 + 1e-40]
    large = 100 if policy.normalizer.clip is None else 1e6
    return torch.cat(
        [shift + scale * noise, shift + 10 * scale * noise, shift + large * scale * noise[:8], torch.stack(edges)]
    )


def assert_agreement(folder: Path, policy: Policy) -> None:
    """Compare ONNX and PyTorch in single steps and in batches."""
    obs = some_obs(policy)
    expected = policy(obs).detach().numpy()
    run = OnnxPolicy(folder)
    check_agreement(np.stack([run(row).copy() for row in obs.numpy()]), expected)
    session = open_session((folder / "policy.onnx").read_bytes(), "")
    for size in (1, 2, 7, len(obs)):
        (actions,) = session.run(["actions"], {"obs": obs[:size].numpy()})
        assert actions.dtype == np.float32
        check_agreement(actions, expected[:size])


def after_training(policy: Policy) -> Policy:
    """Change every parameter: before training many are 0 or 1."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return policy


def trained(policy: Policy, experiment: str = "a1-walk") -> Trained:
    return Trained(policy, experiment)


# -- ONNX and PyTorch agree --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=OPTIONS.values(), ids=OPTIONS)
def with_graph(request) -> tuple[Policy, torch.nn.Module]:
    """Return a policy with certain options, and the graph that is exported for it."""
    policy = after_training(make_policy(**request.param)).eval()
    before = copy.deepcopy(policy.state_dict())
    graph = rewritten(policy)
    assert all(torch.equal(before[name], value) for name, value in policy.state_dict().items())
    return policy, graph


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_every_variant_and_option_agrees(with_graph, exporter, tmp_path, monkeypatch):
    policy, graph = with_graph
    monkeypatch.setattr(onnx_file, "rewritten", lambda policy: graph)
    written = export(trained(policy), tmp_path / "out", exporter)
    assert written.deviation <= TOLERANCE
    assert_agreement(tmp_path / "out", policy)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == FILES


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", experiment_names())
def test_every_experiments_policy_is_exported(name, exporter, tmp_path):
    policy = make_policy(name)
    contract = export(trained(policy, name), tmp_path / "out", exporter).contract
    assert contract.experiment == name
    assert (contract.obs_dim, contract.action_dim) == (policy.obs_dim, policy.layout.action_dim)
    assert Policy.load(tmp_path / "out").layout == policy.layout
    assert (contract.control is None) == (load_experiment(name).deploy is None)
    assert Contract.load(tmp_path / "out") == contract
    OnnxPolicy(tmp_path / "out")


def test_a_shipped_policy_is_exported_with_the_record_of_its_card(tmp_path):
    found = find_trained("pretrained:humanoid-mod")
    contract = export(found, tmp_path / "out").contract
    assert_agreement(tmp_path / "out", found.policy)
    card = (pretrained.path("humanoid-mod") / "card.md").read_text()
    about = contract.training
    assert f"command: `{about.command}`\n" in card
    assert f"commit {about.commit}\n" in card
    assert f"date: {about.date}\n" in card
    assert f"environment steps: {about.steps:,}" in card
    assert (about.variant, about.seed, about.package_version) == ("bot-mix", 0, "0.1.0")


def test_a_humanoids_actions_are_torques(tmp_path):
    contract = export(trained(make_policy("humanoid-mod"), "humanoid-mod"), tmp_path / "out").contract
    control = contract.control
    assert control is not None
    assert (control.kind, control.hz, control.clip) == ("torque", 60.0, 1.0)
    gears = dict(zip(control.joints, control.scale, strict=True))
    named = {"abdomen_x": 67.5, "right_hip_y": 135, "left_knee": 90, "left_ankle_x": 22.5}
    assert named.items() <= gears.items()
    assert control.torque_limits == control.scale
    terms = {term.name: term for term in contract.obs}
    low, high = control.position_limits[1]
    pos = terms["joint_pos"]
    assert [(at - pos.offset[1]) * pos.scale[1] for at in (low, high)] == pytest.approx([-1, 1])
    assert terms["joint_vel"].scale[0] == 0.1
    assert terms["contact_force"].source == ""


def test_a_gaussian_policys_mean_is_exported_and_the_normaliser_is_inside(tmp_path):
    policy = make_policy(head="gaussian", squash="none")
    export(trained(policy), tmp_path / "out")
    run, obs = OnnxPolicy(tmp_path / "out"), some_obs(policy, 1)[:1]
    mean = policy.distribution(obs).mean.detach().numpy()
    check_agreement(run(obs[0].numpy())[None], mean)
    policy.normalizer.set_statistics(torch.zeros(48), torch.ones(48))
    assert deviation(run(obs[0].numpy())[None], policy(obs).detach().numpy()) > 1e-3


def test_exporting_a_policy_in_half_precision_does_not_change_it(tmp_path):
    policy = make_policy().to(torch.bfloat16).train()
    export(trained(policy), tmp_path / "out")
    assert policy.training
    assert next(policy.parameters()).dtype == torch.bfloat16


def test_the_exported_graph_is_as_exact_as_the_policy(with_graph):
    policy, graph = with_graph
    obs, exact = some_obs(policy), copy.deepcopy(policy).double()
    with torch.no_grad():
        expected = exact(obs.double()).numpy()
        off, own = (deviation(network(obs).numpy(), expected) for network in (graph, policy))
    assert off.mean() < 1.5 * own.mean()
    assert off.max() < TOLERANCE


@pytest.mark.parametrize("shared", [False, True])
def test_a_body_too_large_for_one_matrix_agrees_too(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(rewrite_module, "MAX_DENSE", 0)
    policy = after_training(make_policy(shared_tokenizer=shared))
    export(trained(policy), tmp_path / "out")
    assert_agreement(tmp_path / "out", policy)


@pytest.mark.parametrize("variant", ["mlp", "bot-mix"])
def test_a_large_mean_with_a_small_deviation_does_not_cancel(variant, tmp_path):
    policy = make_policy(variant=variant, obs_clip=None)
    policy.normalizer.set_statistics(torch.full((48,), 1000.0), torch.full((48,), 1e-4))
    export(trained(policy), tmp_path / "out")
    obs = 1000 + 0.01 * torch.randn(64, 48, generator=torch.Generator().manual_seed(0))
    run = OnnxPolicy(tmp_path / "out")
    check_agreement(np.stack([run(row).copy() for row in obs.numpy()]), policy(obs).detach().numpy())


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_the_file_has_one_input_one_output_and_no_trace_of_this_machine(exporter):
    policy = make_policy(variant="bot-hard")
    content = to_onnx(policy.eval(), exporter)
    model = onnx.load_from_string(content)
    ports = [(port.name, *(dim.dim_param or dim.dim_value for dim in port.type.tensor_type.shape.dim))
             for port in (*model.graph.input, *model.graph.output)]  # fmt: skip
    assert ports == [("obs", "batch", 48), ("actions", "batch", 12)]
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    for secret in (str(Path(__file__).parents[2]), "site-packages", "body_transformer"):
        assert secret.encode() not in content


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_the_file_has_standard_operators_only_and_few_of_them(exporter):
    content = to_onnx(make_policy(variant="bot-mix").eval(), exporter)  # two layers, one of them masked
    model = onnx.load_from_string(content)
    assert {entry.domain for entry in model.opset_import} == {""}
    assert {node.domain for node in model.graph.node} == {""}
    assert not model.functions
    kinds = [node.op_type for node in model.graph.node if node.op_type not in ("Constant", "Identity")]
    assert len(kinds) <= 2 * 16 + 7
    assert not {"Shape", "Gather", "Split", "Squeeze", "Where", "Cast"} & set(kinds)


def test_onnx_runtime_is_left_with_14_operations_per_layer_and_one_for_the_mask(tmp_path):
    def num_operations(num_layers: int) -> int:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
        options.add_free_dimension_override_by_name("batch", 1)
        options.log_severity_level = 3  # no warning that the file is optimised for this machine
        content = to_onnx(make_policy(variant="bot-mix", num_layers=num_layers).eval())
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return len(onnx.load(options.optimized_model_filepath).graph.node)

    assert num_operations(4) - num_operations(2) == 2 * 14 + 1


@pytest.mark.parametrize(("squash", "last"), [("none", []), ("tanh", ["Tanh"])])
def test_the_mlp_is_three_products(squash, last):
    model = onnx.load_from_string(to_onnx(make_policy(variant="mlp", squash=squash).eval()))
    assert [node.op_type for node in model.graph.node] == ["Sub", "Gemm", "Relu", "Gemm", "Relu", "Gemm", *last]


def test_the_same_policy_gives_the_same_bytes():
    policy = make_policy(variant="bot-mix").eval()
    assert to_onnx(policy) == to_onnx(policy)


# -- check vectors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIONS)
def test_check_vectors_are_random_and_extreme(name):
    policy = make_policy(**OPTIONS[name]).eval()
    obs, actions = check_vectors(policy)
    assert torch.equal(actions, policy(obs))
    size = ((obs - policy.normalizer.shift) / policy.normalizer.scale).abs().amax(1)
    clip = policy.normalizer.clip or 5.0
    assert (obs == 0).all(1).any()
    assert ((obs != 0) & (obs.abs() < 1.2e-38)).all(1).any()
    assert torch.isclose(size, torch.tensor(clip), rtol=1e-5).sum() >= 3
    assert (size > 0.99 * LARGE[-1]).sum() >= 5
    assert ((size > 1) & (size < 5)).sum() >= 8
    if policy.normalizer.clip:
        assert (size > 0.99e6).sum() >= 5


def test_check_vectors_notice_a_wrong_weight(folder, policy, copy):
    model = onnx.load(copy / "policy.onnx")
    weight = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    values = onnx.numpy_helper.to_array(weight).copy()
    values.flat[0] += 0.1
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    import hashlib

    content = model.SerializeToString()
    (copy / "policy.onnx").write_bytes(content)
    replace(Contract.read(folder), model_sha256=hashlib.sha256(content).hexdigest()).save(copy)
    with pytest.raises(ValueError, match=r"check vector \d+ is off by .*, allowed is 1e-05"):
        OnnxPolicy(copy)


def test_a_policy_whose_actions_are_not_finite_is_refused(tmp_path):
    policy = make_policy()
    with torch.no_grad():
        next(policy.detokenizer.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="actions are not finite"):
        export(trained(policy), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# -- source and destination --------------------------------------------------------------------------------------------


def test_the_newest_checkpoint_of_a_run_is_exported_or_the_one_that_is_named(tmp_path, policy):
    run = make_run(tmp_path / "run", policy)
    make_policy(variant="mlp").save(run / "checkpoints" / "12")
    assert find_trained(run).policy.config.variant == "mlp"
    assert find_trained(run).training.steps == 12 * 640
    assert find_trained(run / "checkpoints" / "3").policy.config.variant == "bot-mix"
    assert find_trained(str(run / "checkpoints" / "3")).training.steps == 3 * 640


def test_a_policy_for_another_body_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the policy does not fit the experiment 'humanoid-mod'"):
        export(trained(make_policy(), "humanoid-mod"), tmp_path / "out")


def test_a_policy_of_another_packages_task_has_no_control(tmp_path):
    layout = Layout(make_policy().layout.graph, [Term.root("anything", 5, steps=2)], [Term.root("ctrl", 2)])
    contract = export(trained(Policy(layout, make_policy().config), "mjlab:Task"), tmp_path / "out").contract
    assert contract.control is None
    assert [(term.name, term.source, term.size, term.history) for term in contract.obs] == [("anything", "", 10, 1)]


def test_a_folder_appears_whole_or_not_at_all(tmp_path, policy, monkeypatch):
    def fail(*args):
        raise ValueError("off by 1")

    monkeypatch.setattr(export_module.OnnxPolicy, "verify", fail)
    with pytest.raises(ValueError, match="off by 1"):
        export(trained(policy), tmp_path / "a" / "out")
    assert list((tmp_path / "a").iterdir()) == []


def test_an_earlier_export_stays_if_the_new_one_fails_and_is_replaced_if_it_does_not(copy, policy, monkeypatch):
    before = (copy / "policy.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(files, "replace_folder", lambda *args: (_ for _ in ()).throw(OSError("disk is gone")))
        with pytest.raises(OSError, match="disk is gone"):
            export(trained(policy), copy)
    assert (copy / "policy.json").read_bytes() == before
    export(trained(make_policy(variant="mlp")), copy)
    assert Contract.load(copy).training.variant == "mlp"
    assert [entry.name for entry in copy.parent.iterdir()] == [copy.name]


@pytest.mark.parametrize("mine", ["notes.txt", "a policy"])
def test_a_folder_that_holds_something_else_is_left_alone(tmp_path, policy, mine):
    if mine == "a policy":
        policy.save(tmp_path)
    else:
        (tmp_path / mine).write_text("mine")
    before = {entry: entry.read_bytes() for entry in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"is not empty: name another --out, or empty it; it holds '(notes|policy)\."):
        export(trained(policy), tmp_path)
    assert {entry: entry.read_bytes() for entry in tmp_path.iterdir()} == before


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_writes_the_folder_and_prints_its_contents(tmp_path, policy, capsys):
    run = make_run(tmp_path / "run", policy)
    assert main(["export", str(run), "--out", str(tmp_path / "out"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    contract = Contract.load(tmp_path / "out")
    assert said["model_sha256"] == contract.model_sha256
    assert (said["experiment"], said["variant"], said["control"]) == ("a1-walk", "bot-mix", "position")
    assert said["largest_deviation"] <= TOLERANCE
    assert said["bytes"] == (tmp_path / "out" / "policy.onnx").stat().st_size
    assert main(["export", str(run), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path / 'out'} (a1-walk, bot-mix, ")


def test_an_export_of_a_users_experiment_is_exported_again_as_it_was_written(copy, tmp_path, capsys):
    """The name of the experiment does not lead to its file, so the contract is the only source of the control."""
    before = Contract.read(copy)
    content = json.loads((copy / "policy.json").read_text())
    content["contract"]["experiment"] = "mine"
    content["contract"]["control"]["kp"][0] /= 2
    (copy / "policy.json").write_text(json.dumps(content))
    assert main(["export", str(copy), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "was edited since its export: kp" in said.err
    assert "no robot can run it" not in said.out
    after = Contract.load(tmp_path / "out")
    for name in ("obs", "control", "exported", "environment", "training", "robot_sha256"):
        assert getattr(after, name) == getattr(before, name), name
    assert (tmp_path / "out" / "robot.xml").read_bytes() == (copy / "robot.xml").read_bytes()
    assert after.experiment == "mine"


def test_the_command_refuses_a_source_that_is_not_a_policy(tmp_path, capsys):
    assert main(["export", "pretrained:a1-wlk", "--out", str(tmp_path / "out")]) == 1
    assert "unknown pretrained policy 'a1-wlk'" in capsys.readouterr().err
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "no policy in" in capsys.readouterr().err
