"""The tables of readers and tasks, and the readers' shared functions."""

import subprocess
import sys

import pytest

from body_transformer.imitation.readers import READERS, open_episodes
from body_transformer.imitation.readers.files import naming
from body_transformer.imitation.readers.terms import term_keys
from body_transformer.imitation.tasks import make_task

from .small import LAYOUT


def test_an_unknown_reader_is_an_error_that_lists_all_readers():
    message = r"unknown reader 'minary'; did you mean 'minari'\? have: 'minari', 'mocapact', 'npz', "
    with pytest.raises(ValueError, match=message + "'robomimic', 'rollouts', 'tracking'"):
        open_episodes("minary", "data", LAYOUT)


def need_simulator(reader):
    if reader == "rollouts":
        pytest.importorskip("mjlab", reason="needs the extra 'rl'")


@pytest.mark.parametrize("reader", READERS.places)
def test_an_unknown_option_is_an_error_that_lists_all_options(reader):
    need_simulator(reader)
    allowed = {
        "mocapact": "'actions', 'train_clips', 'validation_clips', 'allow_missing'",
        "rollouts": "'actions', 'clips', 'train_clips', 'validation_clips', 'start_rollouts'",
        "tracking": "'num_clips', 'repetitions', 'clip_seed'",
    }.get(reader, "'obs_keys'")
    with pytest.raises(ValueError, match=f"reader {reader}: unknown option 'colour'; have: {allowed}"):
        open_episodes(reader, "data", LAYOUT, colour="red")


@pytest.mark.parametrize("reader", [name for name in READERS.places if name != "tracking"])
def test_missing_data_are_named(reader):
    need_simulator(reader)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_episodes(reader, "nowhere", LAYOUT)
    with pytest.raises(ValueError, match=f"reader '{reader}' needs the path or name of the demonstrations"):
        open_episodes(reader, None, LAYOUT)


@pytest.mark.parametrize(
    ("reader", "options", "message"),
    [
        ("tracking", {"num_clips": "two"}, "reader tracking.num_clips must be a whole number; got 'two'"),
        ("mocapact", {"allow_missing": "maybe"}, "reader mocapact.allow_missing must be true or false; got 'maybe'"),
    ],
)
def test_options_that_cannot_be_read_from_text_are_refused(reader, options, message):
    with pytest.raises(ValueError, match=message):
        open_episodes(reader, "data", LAYOUT, **options)


def test_an_unknown_task_and_a_missing_option_are_named():
    with pytest.raises(ValueError, match="unknown task 'adroid'; did you mean 'adroit'"):
        make_task("adroid", LAYOUT, {})
    with pytest.raises(ValueError, match="task adroit: missing key: 'name'"):
        make_task("adroit", LAYOUT, {})


def test_the_tracking_task_needs_no_data():
    with pytest.raises(ValueError, match="generates its own demonstrations: leave data out; got 'somewhere'"):
        open_episodes("tracking", "somewhere", LAYOUT)


@pytest.mark.parametrize("reader", ["minari", "npz", "robomimic"])
def test_a_renamed_term_must_be_in_the_layout(reader):
    with pytest.raises(ValueError, match="obs_keys: unknown term 'arm_vel'"):
        open_episodes(reader, "nowhere", LAYOUT, obs_keys={"arm_vel": "vel"})


def test_renamed_terms_may_come_from_a_command_line():
    assert term_keys(LAYOUT, "gravity=down,touch=contact") == {
        "gravity": "down",
        "touch": "contact",
        "arm_pos": "arm_pos",
    }
    for text in ("gravity", "gravity=", "gravity=a=b", "gravity=a,"):
        with pytest.raises(ValueError, match="obs_keys must be written TERM=KEY,TERM=KEY; got"):
            term_keys(LAYOUT, text)


def test_the_readers_load_no_package_of_an_extra_until_they_are_used():
    code = "import sys; import body_transformer.imitation.readers; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"h5py", "minari", "gymnasium"}.isdisjoint(loaded)


def test_without_h5py_the_error_says_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "demo.hdf5").touch()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ValueError, match=r"pip install -c constraints.txt -e '\.\[imitation\]'"):
        open_episodes("robomimic", str(tmp_path / "demo.hdf5"), LAYOUT)


def test_an_error_about_a_file_names_it_once(tmp_path):
    path = tmp_path / "a.hdf5"
    with pytest.raises(ValueError, match=rf"^{path}: too short$"), naming(path), naming(path):
        raise ValueError("too short")
