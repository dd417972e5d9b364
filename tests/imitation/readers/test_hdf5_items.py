"""HDF5 files that name other files of the computer, or state huge sizes, are refused by every reader."""

import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from body_transformer import BodyGraph, Layout, Term
from body_transformer.imitation.readers import minari, mocapact, robomimic
from body_transformer.imitation.readers.hdf5_items import check_whole_file, dataset, item, open_hdf5
from body_transformer.imitation.tasks.mocap.clips import clip_lengths
from body_transformer.rl.mocap.motions import ClipFile
from body_transformer.size_limits import VARIABLE

STEPS, OBS, ACTIONS = 6, 2, 1
GRAPH = BodyGraph.from_edges(["base", "arm"], [("base", "arm")], joints={"elbow": "arm"})
LAYOUT = Layout(GRAPH, [Term.root("gravity", OBS)], Term.joints("torque", ["elbow"]))
FORMATS = {
    "robomimic": ("data/demo_0", "obs", 0, robomimic.open_episodes),
    "minari": ("episode_0", "observations", 1, minari.open_episodes),
    "mocapact": ("CMU_009_12-0-100/0", "observations/proprioceptive", 1, mocapact.open_episodes),
}
"""Reader -> group of an episode, name of its observations, rows beyond the actions, and function."""


@pytest.fixture
def secret(tmp_path):
    """Another file of the computer, which no reader may open."""
    with h5py.File(tmp_path / "secret.hdf5", "w") as file:
        file["actions"] = np.full((STEPS, ACTIONS), 7, np.float32)
        file["obs"] = np.full((STEPS + 1, OBS), 7, np.float32)
        file.create_group("group")["actions"] = np.full((STEPS, ACTIONS), 7, np.float32)
    (tmp_path / "secret.bin").write_bytes(np.full((STEPS + 1) * OBS, 7, np.float32).tobytes())
    return tmp_path / "secret.hdf5"


def write(folder: Path, reader: str) -> Path:
    """Write one good episode; return the HDF5 file."""
    group, obs, extra, _ = FORMATS[reader]
    if reader == "minari":
        (folder / "metadata.json").write_text('{"total_episodes": 1, "data_format": "hdf5"}')
    path = folder / ("main_data.hdf5" if reader == "minari" else "clip.hdf5")
    with h5py.File(path, "w") as file:
        file[f"{group}/actions"] = np.ones((STEPS, ACTIONS), np.float32)
        file[f"{group}/{obs}"] = np.ones((STEPS + extra, OBS), np.float32)
        if reader == "mocapact":
            file["n_start_rollouts"], file["n_rsi_rollouts"] = 1, 0
            file["CMU_009_12-0-100/early_termination"] = np.array([False])
            file["observable_indices/walker/gravity"] = np.arange(OBS)
    return path


def read(path: Path, reader: str):
    episodes = FORMATS[reader][3](str(path.parent if reader == "minari" else path), LAYOUT)
    return episodes.read(0)


def external_link(file, name, secret, which):
    file[name] = h5py.ExternalLink(str(secret), which)


def soft_link_through_an_external_one(file, name, secret, which):
    file["door"] = h5py.ExternalLink(str(secret), "/")
    file[name] = h5py.SoftLink(f"/door/{which}")


def external_storage(file, name, secret, which):
    shape = (STEPS, ACTIONS) if which == "actions" else (STEPS + 1, OBS)
    size = int(np.prod(shape)) * 4
    file.create_dataset(name, shape, np.float32, external=[(str(secret.with_suffix(".bin")), 0, size)])


def virtual_dataset(file, name, secret, which):
    shape = (STEPS, ACTIONS) if which == "actions" else (STEPS + 1, OBS)
    layout = h5py.VirtualLayout(shape, np.float32)
    layout[:] = h5py.VirtualSource(str(secret), which, shape)
    file.create_virtual_dataset(name, layout)


WAYS_OUT = {
    external_link: "is a link to another file, which is never followed",
    soft_link_through_an_external_one: "is a link to another file, which is never followed",
    external_storage: "is stored in another file, which is never opened",
    virtual_dataset: "is stored in another file, which is never opened",
}


@pytest.mark.parametrize("reader", FORMATS)
def test_a_good_file_is_read(tmp_path, reader):
    steps = read(write(tmp_path, reader), reader)
    assert steps.actions.tolist() == [[1.0]] * STEPS


@pytest.mark.parametrize("part", ["actions", "obs"])
@pytest.mark.parametrize("way", WAYS_OUT, ids=lambda way: way.__name__)
@pytest.mark.parametrize("reader", FORMATS)
def test_arrays_of_other_files_are_never_read(tmp_path, secret, reader, way, part):
    path = write(tmp_path, reader)
    group, obs, _, _ = FORMATS[reader]
    name = f"{group}/{obs if part == 'obs' else 'actions'}"
    with h5py.File(path, "a") as file:
        del file[name]
        way(file, name, secret, part)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{WAYS_OUT[way]}"):
        read(path, reader)


@pytest.mark.parametrize("way", [external_link, soft_link_through_an_external_one], ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("reader", "name"),
    [(reader, FORMATS[reader][0].rsplit("/", k)[0]) for reader in FORMATS for k in range(2)]
    + [
        ("robomimic", "mask"),
        ("robomimic", "mask/train"),
        ("mocapact", "n_start_rollouts"),
        ("mocapact", "observable_indices"),
    ],
)
def test_groups_and_notes_of_other_files_are_never_read(tmp_path, secret, reader, name, way):
    path = write(tmp_path, reader)
    with h5py.File(path, "a") as file:
        if name in file:
            del file[name]
        way(file, name, secret, "group")
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*is a link to another file"):
        read(path, reader)


@pytest.mark.parametrize("reader", ["robomimic", "minari"])
def test_names_of_terms_are_not_read_from_other_files(tmp_path, secret, reader):
    path = write(tmp_path, reader)
    group, obs, _, _ = FORMATS[reader]
    module = {"robomimic": robomimic, "minari": minari}[reader]
    with h5py.File(path, "a") as file:
        del file[f"{group}/{obs}"]
        file[f"{group}/{obs}/gravity"] = h5py.ExternalLink(str(secret), "obs")
    for call in (
        lambda: read(path, reader),
        lambda: module.stored_shapes(str(path.parent if reader == "minari" else path)),
    ):
        with pytest.raises(ValueError, match="is a link to another file"):
            call()


def test_the_other_file_is_not_even_opened(tmp_path):
    """A link to a file that HDF5 could not open is refused in the same words as one that it could."""
    path = write(tmp_path, "robomimic")
    with h5py.File(path, "a") as file:
        del file["data/demo_0/actions"]
        file["data/demo_0/actions"] = h5py.ExternalLink(str(tmp_path / "missing.hdf5"), "actions")
    with pytest.raises(ValueError, match="is a link to another file, which is never followed"):
        read(path, "robomimic")


@pytest.mark.parametrize("reader", FORMATS)
def test_soft_links_inside_the_file_are_followed(tmp_path, reader):
    path = write(tmp_path, reader)
    name = f"{FORMATS[reader][0]}/actions"
    with h5py.File(path, "a") as file:
        file["elsewhere"] = file[name][()] * 3
        del file[name]
        file[name] = h5py.SoftLink("/elsewhere")
    assert read(path, reader).actions.tolist() == [[3.0]] * STEPS


def test_a_circle_of_soft_links_is_refused(tmp_path):
    with h5py.File(tmp_path / "circle.hdf5", "w") as file:
        file["a"], file["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")
        file["group/own"] = np.ones(3)
        file["group/relative"] = h5py.SoftLink("./own")
        file["nothing"] = h5py.SoftLink("/no/such/place")
        with pytest.raises(ValueError, match="is one of over 16 soft links in a row"):
            item(file, "a")
        assert item(file["group"], "relative").shape == item(file["group"], "/group/own").shape == (3,)
        assert item(file, "nothing") is item(file, "group/own/below") is item(file, "missing/more") is None


def test_a_link_that_a_program_defines_is_refused(tmp_path):
    path = write(tmp_path, "robomimic")
    with h5py.File(path, "a") as file:
        file["data/demo_0"].move("actions", "action_")
        file["data/demo_0/actions"] = h5py.ExternalLink("x", "y")
    content = path.read_bytes()
    place = content.index(b"actions", content.index(b"action_"))
    assert place > 0  # the link's type, 64, precedes its name in a link message
    changed = bytearray(content)
    types = [k for k in range(place - 12, place) if changed[k] == 64]
    if not types:
        pytest.skip("this version of HDF5 stores links in another form")
    changed[types[-1]] = 70
    path.write_bytes(changed)
    with pytest.raises(ValueError, match=re.escape(str(path))):
        read(path, "robomimic")


# -- sizes -------------------------------------------------------------------------------------------------------------


def huge(file, name, shape):
    """Create a dataset that states a size and takes almost no space."""
    made = file.create_dataset(
        name, shape, np.float32, chunks=(1, *(min(size, 4) for size in shape[1:])), compression=1
    )
    made[0] = 1.0


@pytest.mark.parametrize("reader", FORMATS)
def test_a_small_file_cannot_state_gigabytes(tmp_path, reader):
    path = write(tmp_path, reader)
    group, obs, extra, _ = FORMATS[reader]
    with h5py.File(path, "a") as file:
        del file[f"{group}/actions"], file[f"{group}/{obs}"]
        huge(file, f"{group}/actions", (2**31, ACTIONS))
        huge(file, f"{group}/{obs}", (2**31 + extra, OBS))
    refusal = f"{re.escape(str(path))}.*actions would take 8 GiB of memory; the limit is 512 MiB.*{VARIABLE}=8$"
    with pytest.raises(ValueError, match=refusal):
        read(path, reader)


@pytest.mark.parametrize("shape", [(2**62, 1), (2**40, 2**40)])
def test_sizes_beyond_64_bits_are_exact(tmp_path, shape):
    with h5py.File(tmp_path / "huge.hdf5", "w") as file:
        try:
            file.create_dataset("a", shape, np.float32, chunks=(1, 1))
        except ValueError:
            pytest.skip("this version of HDF5 refuses to state such a size")
        with pytest.raises(ValueError, match=r"/a would take .* the limit is 512 MiB"):
            dataset(file, "a")


def test_a_huge_chunk_is_refused(tmp_path):
    with h5py.File(tmp_path / "chunk.hdf5", "w") as file:
        made = file.create_dataset("a", (4, 1), np.float32, chunks=(2**29, 1), maxshape=(None, 1), compression=1)
        assert made.chunks == (2**29, 1)
        with pytest.raises(ValueError, match="a chunk of /a would take 2 GiB"):
            dataset(file, "a")


def test_a_dataset_that_states_a_million_episodes_fails_at_the_first_missing_one(tmp_path):
    path = write(tmp_path, "minari")
    (tmp_path / "metadata.json").write_text(f'{{"total_episodes": {10**18}}}')
    with pytest.raises(ValueError, match=r"episode_1 is missing; metadata\.json lists 1000000000000000000 episodes"):
        read(path, "minari")


# -- files that dm_control reads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS_OUT, ids=lambda way: way.__name__)
def test_clips_of_other_files_are_never_read(tmp_path, secret, way):
    path = tmp_path / "clips.hdf5"
    with h5py.File(path, "w") as file:
        clip = file.create_group("CMU_009_12")
        clip.attrs["num_steps"] = STEPS
        way(file, "CMU_009_12/walkers/walker_0/position", secret, "actions")
    for call in (clip_lengths, ClipFile.open):
        with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{WAYS_OUT[way]}"):
            call(path)


def test_a_whole_file_may_have_hard_and_soft_links_in_a_circle(tmp_path):
    with h5py.File(tmp_path / "circle.hdf5", "w") as file:
        file["a/b"] = np.ones(3)
        file["a/circle"] = file["a"]
        file["a/soft"] = h5py.SoftLink("/a")
    with open_hdf5(tmp_path / "circle.hdf5") as file:
        check_whole_file(file)


@pytest.mark.parametrize("place", ["/", "CMU_009_12", "CMU_009_12/walkers/walker_0"])
def test_clips_with_an_attribute_of_many_texts_are_refused(tmp_path, place):
    """The texts may all be the same bytes of the file."""
    path = tmp_path / "clips.hdf5"
    with h5py.File(path, "w") as file:
        file.create_group("CMU_009_12/walkers/walker_0")
        file["CMU_009_12"].attrs["num_steps"] = STEPS
        file[place].attrs["names"] = np.array(["a", "b"], h5py.string_dtype())
    for call in (clip_lengths, ClipFile.open):
        with pytest.raises(ValueError, match=rf"^{path}: .*attribute 'names' of {re.escape('/' + place.strip('/'))}"):
            call(path)
