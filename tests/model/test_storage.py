import errno
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from body_transformer import Critic, Layout, Policy
from body_transformer.files import digest
from body_transformer.model import storage
from body_transformer.model.variants import VARIANTS

from .bodies import few, layouts, make_policy, random_obs

FILES = {"policy.json", "policy.safetensors"}
OPTIONS = [
    *({"variant": variant} for variant in VARIANTS),
    {"positional_encoding": False},
    {"shared_tokenizer": True},
    {"norm": "pre", "activation": "gelu"},
    {"head": "gaussian", "std": "learned", "init_std": 0.3},
    {"head": "gaussian", "std": "fixed", "init_std": 0.1},
    {"squash": "tanh", "obs_clip": 5.0, "init": "normal"},
    {"variant": "bot-hard-random", "mask_seed": 2**32 - 1},
    {"variant": "mlp", "shared_tokenizer": True, "head": "gaussian"},
]


def trained(layout: Layout, seed: int = 0, **changes) -> Policy:
    """Return a policy in which every tensor differs from its initial value."""
    policy = make_policy(layout, seed, **changes)
    policy.normalizer.set_statistics(torch.randn(layout.obs_dim), torch.rand(layout.obs_dim) + 0.5)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn_like(parameter))
    return policy


def assert_same(loaded: Policy, saved: Policy) -> None:
    """Check that policies are equal, their weights bit by bit; actions may differ by rounding."""
    obs = random_obs(saved.layout, dtype=saved.normalizer.shift.dtype)
    torch.testing.assert_close(loaded(obs), saved(obs))
    assert loaded.config == saved.config
    assert loaded.layout == saved.layout
    assert loaded.layout.graph == saved.layout.graph
    assert loaded.layout.graph.to_dict() == saved.layout.graph.to_dict()
    weights, expected = loaded.state_dict(), saved.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def refusal(path: Path) -> str:
    """Return the message of the ValueError that loading raises."""
    with pytest.raises(ValueError, match=r"policy\.(json|safetensors)") as error:
        Policy.load(path)
    return str(error.value)


@pytest.fixture
def policy(layout: Layout) -> Policy:
    return trained(layout, variant="bot-hard")


@pytest.fixture
def saved(policy: Policy, tmp_path: Path) -> Path:
    policy.save(tmp_path / "policy")
    return tmp_path / "policy"


# -- saving and loading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", OPTIONS, ids=str)
def test_every_variant_and_option_is_restored_bit_by_bit(changes, layout, tmp_path):
    policy = trained(layout, **changes)
    policy.save(tmp_path / "policy")
    assert_same(Policy.load(tmp_path / "policy"), policy)


@few
@given(layouts())
def test_every_body_is_restored(layout):
    with tempfile.TemporaryDirectory() as folder:
        policy = trained(layout, num_layers=1)
        policy.save(folder)
        assert_same(Policy.load(folder), policy)


def test_the_same_policy_gives_the_same_bytes(layout, tmp_path):
    policy = trained(layout)
    for k in range(12):
        policy.save(tmp_path / str(k))
    for name in FILES:
        assert len({(tmp_path / str(k) / name).read_bytes() for k in range(12)}) == 1


def test_parameters_that_are_views_of_one_vector_can_be_saved(policy, tmp_path):
    vector_to_parameters(parameters_to_vector(policy.parameters()), policy.parameters())  # as for a line search
    policy.save(tmp_path / "policy")
    assert_same(Policy.load(tmp_path / "policy"), policy)


def test_a_path_may_be_a_string_with_missing_parents(policy, tmp_path):
    policy.save(str(tmp_path / "runs" / "1" / "policy"))
    assert_same(Policy.load(str(tmp_path / "runs" / "1" / "policy")), policy)


def test_a_path_may_be_relative_or_the_working_folder(policy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    policy.save("here")
    assert_same(Policy.load("here"), policy)
    policy.save(".")
    assert_same(Policy.load("."), policy)
    assert {entry.name for entry in tmp_path.iterdir()} == {"here", *FILES}


def test_loading_does_not_change_the_state_of_a_random_generator(saved):
    def drawn_after(action) -> list[float]:
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002, the global generator is tested
        random.seed(0)
        action()
        return [torch.rand(1).item(), float(np.random.rand()), random.random()]  # noqa: NPY002

    assert drawn_after(lambda: Policy.load(saved)) == drawn_after(lambda: None)


def test_saving_changes_nothing_about_the_policy(policy, layout, obs, tmp_path):
    before = policy(obs)
    policy.save(tmp_path / "policy")
    assert torch.equal(policy(obs), before)
    assert all(parameter.requires_grad for parameter in policy.parameters())


# -- damaged and changed files -----------------------------------------------------------------------------------------


def test_truncated_or_longer_weights_are_refused_wherever_they_end(saved):
    weights = saved / "policy.safetensors"
    whole = weights.read_bytes()
    ends = {0, 1, 7, 8, 9, 100, len(whole) - 1, *range(0, len(whole), len(whole) // 40), len(whole) + 1}
    for end in ends:
        weights.write_bytes((whole + b"\0")[:end])
        assert "policy.safetensors' is not the file that policy.json was written with" in refusal(saved)


def test_a_flipped_bit_in_the_weights_is_refused_wherever_it_is(saved):
    weights = saved / "policy.safetensors"
    whole = weights.read_bytes()
    for position in [*range(16), *random.Random(0).sample(range(len(whole)), 60), len(whole) - 1]:
        changed = bytearray(whole)
        changed[position] ^= 1 << (position % 8)
        weights.write_bytes(changed)
        assert "truncated, changed or swapped" in refusal(saved)


def test_a_truncated_description_is_refused_wherever_it_ends(saved):
    description = saved / "policy.json"
    whole = description.read_bytes()
    for end in {0, 1, 2, *range(0, len(whole) - 2, len(whole) // 40), len(whole) - 2}:  # the last byte ends the line
        description.write_bytes(whole[:end])
        assert "policy.json' is not valid JSON" in refusal(saved)


def test_a_changed_byte_in_the_description_is_refused_or_has_no_effect(saved, policy):
    description = saved / "policy.json"
    whole = description.read_bytes()
    refused = 0
    for position in [*range(0, len(whole), 17), *range(200)]:
        changed = bytearray(whole)
        changed[position] ^= 1 << (position % 8)
        description.write_bytes(changed)
        try:
            loaded = Policy.load(saved)
        except ValueError:
            refused += 1
        else:  # the byte was a space, or in the version of the package
            assert_same(loaded, policy)
    assert refused > 100


def edit(saved: Path, change) -> None:
    description = saved / "policy.json"
    content = json.loads(description.read_text())
    change(content)
    description.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["policy"]["config"].update(variant="transformer"),  # its tensors would fit
        lambda content: content["policy"]["config"].update(obs_clip=1.0),
        lambda content: content["policy"]["config"].pop("num_heads"),
        lambda content: content["policy"]["layout"]["graph"]["extra_edges"].clear(),
        lambda content: content["policy"]["layout"]["obs"].reverse(),
        lambda content: content["policy"].pop("layout"),
        lambda content: content.pop("policy"),
        lambda content: content.pop("weights_sha256"),
        lambda content: content.update(weights_sha256=None),
        lambda content: content.update(weights_sha256="0" * 64),
        lambda content: content.update(package_version="9.9"),
    ],
)
def test_any_edit_of_the_description_is_refused(change, saved):
    edit(saved, change)
    assert "changed or swapped" in refusal(saved)


@pytest.mark.parametrize("change", [{"note": "trust me"}, {"format_version": True}])
def test_an_unknown_key_or_format_is_refused(change, saved):
    edit(saved, lambda content: content.update(change))
    assert "policy.json" in refusal(saved)


def test_tensors_that_do_not_fit_the_description_are_refused_even_if_the_digests_do(saved):
    with pytest.raises(ValueError, match=r"policy.safetensors' does not fit policy.json: .*detokenizer\.weight"):
        storage.load_policy(Critic, saved)


def test_a_description_that_was_only_reformatted_is_accepted(saved, policy):
    edit(saved, lambda content: None)
    assert_same(Policy.load(saved), policy)


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_file_of_another_policy_is_refused_even_if_only_the_weights_differ(file, saved, layout, tmp_path):
    trained(layout, seed=1, variant="bot-hard", mask_seed=1).save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / file, saved / file)
    assert "swapped" in refusal(saved)


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_missing_file_is_named(file, saved):
    (saved / file).unlink()
    with pytest.raises(FileNotFoundError, match=f"no policy in .*policy'.*{file} is missing"):
        Policy.load(saved)


def test_a_newer_format_is_refused_with_both_versions(saved):
    edit(saved, lambda content: content.update(format_version=3, package_version="9.1.0"))
    message = refusal(saved)
    assert "format version 3, written by body_transformer '9.1.0'" in message
    assert "reads versions up to 2" in message


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"null", b"[]", b"3", b'"policy"', b"{}", b'{"format": "other"}'),
        *(b"\xef\xbb\xbf{}", b"[" * 10**5, b"\xff\xfe{}"),
    ],
)
def test_json_that_does_not_describe_a_policy_is_refused(content, saved):
    (saved / "policy.json").write_bytes(content)
    assert "policy.json'" in refusal(saved)


class Payload:
    """An object that touches a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def write_pickle(obj: Payload, file: Path) -> None:
    file.write_bytes(pickle.dumps(obj))


@pytest.mark.parametrize("write", [write_pickle, torch.save])
@pytest.mark.parametrize("forged", [False, True], ids=["", "with a digest that fits"])
def test_a_pickle_in_place_of_the_weights_is_refused_and_never_executed(write, forged, saved, tmp_path):
    marker, weights = tmp_path / "executed", saved / "policy.safetensors"
    write(Payload(marker), weights)
    if forged:
        edit(saved, lambda content: content.update(weights_sha256=digest(weights)))
    assert "policy.safetensors' is not " in refusal(saved)
    assert not marker.exists()


# -- paths ------------------------------------------------------------------------------------------------------------


def test_saving_over_a_policy_replaces_it(saved, layout):
    newer = trained(layout, seed=1, variant="mlp")
    newer.save(saved)
    assert_same(Policy.load(saved), newer)
    assert {file.name for file in saved.iterdir()} == FILES
    assert [file.name for file in saved.parent.iterdir()] == ["policy"]


def test_other_files_in_the_folder_stay(policy, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    policy.save(tmp_path)
    assert_same(Policy.load(tmp_path), policy)
    assert {file.name for file in tmp_path.iterdir()} == {"notes.txt", *FILES}
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_path_that_is_a_file_is_refused_and_left_alone(policy, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="it is a file; give a folder"):
        policy.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_path_below_a_file_is_refused_by_name(policy, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises((OSError, ValueError), match=str(tmp_path / "file")):
        policy.save(tmp_path / "file" / "policy")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("content", [None, "empty", "policy", "other files"])
def test_a_symlink_to_a_folder_stays_one_and_the_folder_gets_the_policy(content, policy, layout, tmp_path):
    real, link = tmp_path / "far" / "real", tmp_path / "link"
    real.parent.mkdir()
    if content is not None:
        real.mkdir()
    if content == "policy":
        trained(layout, seed=1).save(real)
    if content == "other files":
        (real / "notes.txt").touch()
    link.symlink_to(real)
    policy.save(link)
    assert link.is_symlink()
    assert_same(Policy.load(link), policy)
    assert_same(Policy.load(real), policy)
    assert {entry.name for entry in tmp_path.iterdir()} == {"far", "link"}
    assert [entry.name for entry in real.parent.iterdir()] == ["real"]


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """Yield a writable folder; tests that run as root act as the user `nobody` meanwhile."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_an_unwritable_parent_folder_is_an_error_that_names_it(policy):
    with ordinary_user() as folder:
        if os.getuid() != 0:
            folder.chmod(0o555)
        with pytest.raises(PermissionError, match=str(folder)):
            policy.save(folder / "policy")
        assert list(folder.iterdir()) == []


def test_a_writable_folder_in_an_unwritable_parent_suffices(policy):
    with ordinary_user() as folder:
        if os.getuid() != 0:
            (folder / "mine").mkdir()
            folder.chmod(0o555)
        else:
            os.seteuid(0)
            (folder / "mine").mkdir()
            (folder / "mine").chmod(0o777)
            os.seteuid(65534)
        policy.save(folder / "mine")
        assert_same(Policy.load(folder / "mine"), policy)


# -- interrupted saves -----------------------------------------------------------------------------------------------


class Interruption:
    """A function that raises an error after some calls."""

    def __init__(self, function, calls_before: int, error: BaseException) -> None:
        self.function, self.left, self.error = function, calls_before, error

    def __call__(self, *args, **kwargs):
        if self.left == 0:
            raise self.error
        self.left -= 1
        return self.function(*args, **kwargs)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space left"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize(
    ("module", "name", "calls_before"),
    [(storage, "write_tensors", 0), (storage, "digest", 0), (os, "fsync", 0), (os, "fsync", 2), (os, "replace", 0)],
)
def test_an_interrupted_save_leaves_no_new_folder_and_keeps_an_old_policy(
    module, name, calls_before, error, saved, policy, layout
):
    for path in (saved.with_name("fresh"), saved):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, Interruption(getattr(module, name), calls_before, error))
            with pytest.raises(type(error)):
                trained(layout, seed=1).save(path)
    assert_same(Policy.load(saved), policy)
    assert {file.name for file in saved.iterdir()} == FILES
    assert [file.name for file in saved.parent.iterdir()] == ["policy"]


def test_a_policy_whose_save_was_interrupted_between_the_two_moves_is_refused(saved, layout):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", Interruption(os.replace, 1, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            trained(layout, seed=1).save(saved)
    assert "changed or swapped" in refusal(saved)


KILLED = """
import os, signal, sys
from body_transformer import Policy

policy, target, calls_left, replace = Policy.load(sys.argv[1]), sys.argv[2], [int(sys.argv[3])], os.replace

def dying(*args):
    if calls_left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    calls_left[0] -= 1
    replace(*args)

os.replace = dying
policy.save(target)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("calls_before", "left"), [(0, "old"), (1, "refused"), (2, "new")])
def test_a_save_that_is_killed_leaves_a_whole_policy_or_one_that_is_refused(saved, policy, layout, calls_before, left):
    # The tensors of both policies fit both, so only the digests reveal a mixture.
    newer, path = trained(layout, seed=1, variant="transformer"), saved.with_name("newer")
    newer.save(path)
    command = [sys.executable, "-c", KILLED, str(path), str(saved), str(calls_before)]
    assert subprocess.run(command, timeout=60).returncode == -signal.SIGKILL
    if left == "refused":
        assert "changed or swapped" in refusal(saved)
    else:
        assert_same(Policy.load(saved), policy if left == "old" else newer)


def test_each_tensor_keeps_its_precision(policy, tmp_path):
    policy.normalizer.double()
    policy.save(tmp_path / "mixed")
    loaded = Policy.load(tmp_path / "mixed")
    assert loaded.normalizer.shift.dtype == torch.float64
    assert loaded.tokenizer.weight.dtype == torch.float32
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_the_weights_have_the_permissions_of_the_description(saved):
    assert (saved / "policy.safetensors").stat().st_mode == (saved / "policy.json").stat().st_mode
