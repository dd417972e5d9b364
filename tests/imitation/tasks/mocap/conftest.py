"""Two generated clips, so that nothing must be downloaded, and the CMU clips if they are available."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dm_control", reason="needs the extra 'imitation'")
pytest.importorskip("h5py", reason="needs the extra 'imitation'")

from body_transformer.imitation.tasks.mocap.clips import DT_S, MotionSource, convert
from body_transformer.imitation.tasks.mocap.snippets import Snippet

UPRIGHT = np.array([0.859, 1.0, 1.0, 0.859]) / np.linalg.norm([0.859, 1.0, 1.0, 0.859])
STANDING_M = 0.95  # of the root, for the CMU humanoid before it is scaled to the V2020 walker
CMU = Path(__file__).parents[4] / "../shared/data/cmu_humanoid"


def standing(num_frames: int, swing_rad: float) -> np.ndarray:
    """Return the motion [T, 63] of a standing person with slightly swinging arms; some angles are out of range."""
    qpos = np.zeros((num_frames, 63))
    qpos[:, 2] = STANDING_M
    qpos[:, 3:7] = UPRIGHT
    time = DT_S * np.arange(num_frames)
    qpos[:, 0] = 0.02 * np.sin(time)
    qpos[:, 7:] = 0.05 + swing_rad * np.sin(2 * time)[:, None] * np.linspace(0, 1, 56)
    qpos[num_frames // 2 :, 3:7] *= -1  # the same rotation with the opposite sign
    return qpos.astype(np.float32)


def whole(env, clip: str):
    """Return a clip as one snippet."""
    return Snippet(clip, 0, env.lengths[clip])


@pytest.fixture(scope="session")
def motions() -> dict[str, np.ndarray]:
    return {"CMU_900_01": standing(40, 0.1), "CMU_900_02": standing(60, 0.2)}


@pytest.fixture(scope="session")
def npz(motions, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("motions") / "motions.npz"
    jump = standing(40, 0.1)
    jump[20, 9] -= 2.0  # a hip, far within its range
    np.savez(path, **motions, CMU_900_03=jump, CMU_900_04=standing(10, 0.1))
    return path


@pytest.fixture(scope="session")
def clips_file(npz, motions) -> Path:
    path = npz.with_name("clips.hdf5")
    convert(MotionSource.open(npz), path, list(motions))
    return path


@pytest.fixture(scope="session")
def env(clips_file):
    from body_transformer.imitation.tasks.mocap.environment import MocapEnv

    return MocapEnv(clips_file)


@pytest.fixture(scope="session")
def cmu_clips_file(tmp_path_factory) -> Path:
    if not (CMU / "clips.npz").is_file():
        pytest.skip("the CMU clips are not available")
    path = tmp_path_factory.mktemp("cmu") / "clips.hdf5"
    convert(MotionSource.open(CMU / "clips.npz", CMU / "meta_all_clips.json"), path, ["CMU_132_51", "CMU_002_03"])
    return path
