"""Motion clips made here, and the walkers that track them, on the CPU."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mjlab", reason="needs the extra 'rl'")
pytest.importorskip("dm_control", reason="needs the extra 'imitation'")
pytest.importorskip("h5py", reason="needs the extra 'imitation'")

from body_transformer.imitation.tasks.mocap.clips import DT_S, MotionSource, convert

UPRIGHT = np.array([0.859, 1.0, 1.0, 0.859]) / np.linalg.norm([0.859, 1.0, 1.0, 0.859])
STANDING_M = 1.12
"""Of the root, for the V2020 walker."""
FINGERS = (41, 42, 43, 53, 54, 55)
"""Places of fingers and thumbs among the joints of a motion file."""
CMU = Path(__file__).parents[3] / "../shared/data/cmu_humanoid"


def moving(num_frames: int, seed: int, swing_rad: float = 0.15) -> np.ndarray:
    """Return the motion [T, 63] of a standing person who moves all joints and sways."""
    rng = np.random.default_rng(seed)
    time = DT_S * np.arange(num_frames)[:, None]
    phases, rates = rng.uniform(0, 6, (2, 59))
    qpos = np.zeros((num_frames, 63))
    qpos[:, :3] = [0.0, 0.0, STANDING_M] + 0.03 * np.sin(rates[:3] * time + phases[:3])
    qpos[:, 3:7] = UPRIGHT
    qpos[:, 7:] = swing_rad * (1 + np.sin(rates[3:] * time + phases[3:]))
    qpos[:, 7 + np.array(FINGERS)] = 0.0
    return qpos.astype(np.float32)


LENGTHS = {"CMU_900_01": 40, "CMU_900_02": 90, "CMU_900_03": 60, "CMU_900_04": 250}


@pytest.fixture(scope="session")
def clips_file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("motions")
    np.savez(folder / "motions.npz", **{name: moving(n, k) for k, (name, n) in enumerate(LENGTHS.items())})
    convert(MotionSource.open(folder / "motions.npz"), folder / "clips.hdf5", scale=1.0)
    return folder / "clips.hdf5"


@pytest.fixture(scope="session")
def options(clips_file) -> dict[str, str]:
    """Options of the task: three training clips and one for validation."""
    for name, clips in (("train", list(LENGTHS)[:2] + list(LENGTHS)[3:]), ("validation", [list(LENGTHS)[2]])):
        clips_file.with_name(f"{name}.txt").write_text("\n".join(clips) + "\n")
    return {
        "clips": str(clips_file),
        "train_clips": str(clips_file.with_name("train.txt")),
        "validation_clips": str(clips_file.with_name("validation.txt")),
    }


@pytest.fixture(scope="session")
def env(options):
    """Four walkers in MuJoCo Warp, in training."""
    from body_transformer.rl.registry import make_env

    with closing(make_env("mocap-expert", 4, 0, "cpu", options=options)) as made:
        yield made
