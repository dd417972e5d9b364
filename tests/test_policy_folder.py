"""One function finds a policy for `Policy.load` and for every command."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from body_transformer import Policy, pretrained
from body_transformer.cli.main import main
from body_transformer.policy_folder import PolicyFolder, find_policy
from body_transformer.run import Run, experiment_of

from .model.bodies import chain, make_policy


@pytest.fixture
def policy() -> Policy:
    return make_policy(chain(2), variant="bot-hard", num_layers=1)


@pytest.fixture
def run(policy: Policy, tmp_path: Path) -> Path:
    Run.create(tmp_path / "run", {"name": "mine"})
    for step in (2, 10):
        policy.save(tmp_path / "run" / "checkpoints" / str(step))
    (tmp_path / "run" / "checkpoints" / "last").symlink_to("10")
    return tmp_path / "run"


def test_a_path_means_a_saved_policy_or_a_checkpoint_of_a_run(policy, run, tmp_path):
    policy.save(tmp_path / "mine")
    assert find_policy(tmp_path / "mine") == PolicyFolder(tmp_path / "mine")
    assert experiment_of(find_policy(tmp_path / "mine")) is None
    newest = find_policy(run)
    assert newest == PolicyFolder(run / "checkpoints" / "10", run, 10)
    assert experiment_of(newest) == "mine"
    assert find_policy(run / "checkpoints" / "2") == PolicyFolder(run / "checkpoints" / "2", run, 2)
    assert find_policy(str(run / "checkpoints" / "last")).step == 10
    (run / "experiment.yaml").unlink()  # without it, a checkpoint belongs to no run
    assert find_policy(run) == PolicyFolder(run / "checkpoints" / "10", None, 10)


def test_a_shipped_policy_has_a_name_and_an_experiment():
    for name in pretrained.names():
        found = find_policy(f"pretrained:{name}")
        assert found == PolicyFolder(pretrained.path(name), pretrained=name)
        assert experiment_of(found) == pretrained.task(name)


def test_policy_load_opens_every_kind(policy, run, tmp_path):
    policy.save(tmp_path / "saved")
    for source in (run, run / "checkpoints" / "2", run / "checkpoints" / "last", tmp_path / "saved"):
        loaded = Policy.load(source)
        assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in policy.state_dict().items())
    assert Policy.load("pretrained:humanoid-mod").layout.action_dim == 21


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "no policy in .*nowhere': the folder does not exist; expected a folder with policy.json, a run"),
        ("file", "no policy in .*file': it is a file; expected a folder with policy.json"),
        ("empty", "no policy in .*empty': policy.json is missing; expected a folder with policy.json"),
        ("run", "no policy in .*run': the run has no checkpoint yet"),
    ],
)
def test_a_place_without_a_policy_is_named_with_the_missing_part(run, tmp_path, source, message):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(FileNotFoundError, match=message):
        find_policy(tmp_path / source)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown pretrained policy 'a1-wlk'; did you mean 'a1-walk'"):
        find_policy("pretrained:a1-wlk")


def test_a_policy_of_format_version_1_can_be_read(policy, tmp_path):
    """Version 1 differs only in its number, which is part of the digest that the weights hold."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    from body_transformer.files import digest
    from body_transformer.policy_folder import description_digest

    policy.save(tmp_path)
    content = json.loads((tmp_path / "policy.json").read_text()) | {"format_version": 1}
    with safe_open(tmp_path / "policy.safetensors", framework="pt") as weights:
        tensors = {name: weights.get_tensor(name) for name in weights.keys()}  # noqa: SIM118
    save_file(tensors, tmp_path / "policy.safetensors", {"description_sha256": description_digest(content)})
    content["weights_sha256"] = digest(tmp_path / "policy.safetensors")
    (tmp_path / "policy.json").write_text(json.dumps(content))
    loaded = Policy.load(tmp_path)
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in policy.state_dict().items())


# -- commands that need more than a policy name the missing part ------------------------------------------------------


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(list(args)) == 1
    return capsys.readouterr().err


def test_a_saved_policy_is_evaluated_only_on_a_named_experiment(policy, tmp_path, capsys):
    policy.save(tmp_path / "mine")
    words = said(capsys, "eval", str(tmp_path / "mine"))
    assert "does not name its experiment, so there is no task to evaluate it on; add --experiment NAME" in words
    words = said(capsys, "eval", str(tmp_path / "mine"), "--experiment", "humanoid-mud")
    assert "unknown experiment 'humanoid-mud'; did you mean 'humanoid-mod'" in words
    words = said(capsys, "eval", str(tmp_path / "mine"), "--experiment", "demo")
    assert "the policy does not fit the experiment 'demo'" in words


def test_a_report_shows_a_checkpoints_run_and_names_the_files_that_a_policy_lacks(policy, run, tmp_path, capsys):
    from body_transformer.report.load import find_folders

    policy.save(tmp_path / "mine")
    assert find_folders([run / "checkpoints" / "2", run]) == ([run], [])
    for source in (str(tmp_path / "mine"), "pretrained:a1-walk"):
        words = said(capsys, "report", source, "--out", str(tmp_path / "page.html"))
        assert f"{source!r} is a policy without its run: give a run's folder, which has metrics.jsonl" in words


def test_a_policy_without_an_export_is_not_deployed(policy, run, tmp_path, capsys):
    policy.save(tmp_path / "mine")
    for source in (str(tmp_path / "mine"), str(run), "pretrained:a1-walk"):
        words = said(capsys, "deploy", source)
        assert f"no exported policy in {source!r}: " in words
        assert f"`bot export {source} --out DIR` exports it" in words


def test_a_saved_policy_is_exported_and_its_missing_control_is_named(policy, tmp_path, capsys):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    policy.save(tmp_path / "mine")
    assert main(["export", str(tmp_path / "mine"), "--out", str(tmp_path / "out")]) == 0
    assert "the contract has no control, because --experiment NAME was not given" in capsys.readouterr().out
    loaded = Policy.load(tmp_path / "out")
    obs = torch.randn(3, policy.obs_dim)
    torch.testing.assert_close(loaded(obs), policy(obs))
    words = said(capsys, "deploy", str(tmp_path / "out"))
    assert "cannot run on a robot: its export names no experiment: export it with --experiment NAME" in words
    words = said(capsys, "export", str(tmp_path / "mine"), "--out", str(tmp_path / "o"), "--experiment", "a1-walk")
    assert "the policy does not fit the experiment 'a1-walk'" in words
    content = json.loads((tmp_path / "out" / "policy.json").read_text())
    content["contract"]["experiment"] = "mine"
    (tmp_path / "out" / "policy.json").write_text(json.dumps(content))
    words = said(capsys, "eval", str(tmp_path / "out"))
    assert "was trained for 'mine', which is not a shipped experiment: add --experiment FILE.yaml" in words
