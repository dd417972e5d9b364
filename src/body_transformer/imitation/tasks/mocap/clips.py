"""Motion clips in the format of dm_control's tracking task, made from joint angles.

    python -m body_transformer.imitation.tasks.mocap.clips CLIPS_NPZ OUT_HDF5

A clip is an array [T, 63] in the npz: root position (m), root quaternion (w, x, y, z), 56 hinge angles (rad). The other
features (positions and orientations of the bodies, centre of mass, velocities) are computed on dm_control's V2020 CMU
humanoid. Angles outside a joint's range are clipped to it. That walker is 1.2 times as large as the CMU humanoid of its
model file. Root positions of motions for the smaller one are scaled by the same factor (`scale`). Without the scaling,
the feet would be 19 cm in the ground.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.progress import Progress

from ....array_files import ArrayArchive
from ....documents import read_json
from ....errors import import_extra, listing, unknown
from ....files import atomic_write, reserve
from ....text import printable
from ...readers.files import DAMAGE, naming
from ...readers.hdf5_items import check_whole_file
from .snippets import SHORTEST, read_clip_list

h5py = import_extra("h5py", "imitation")
DT_S = 0.03
"""Time between frames, and the tracking task's control step."""
MAX_SPEED = 45.0
"""Joint speed (rad/s) above which a motion is treated as a jump in the data; about one CMU clip in twenty has one."""
SCALE = 1.2
"""Size of the V2020 walker relative to the CMU humanoid of its model file (dm_control's `rescale_humanoid`)."""
CMU_2020 = 4
"""dm_control's number for the walker (`mocap_pb2.Walker.CMU_2020`)."""


@dataclass
class ConversionReport:
    """Clips that were written, and clips that were left out."""

    written: dict[str, float] = field(default_factory=dict)
    """Written clip -> fraction of its angles that were outside their joints' ranges."""
    glitches: dict[str, float] = field(default_factory=dict)
    """Clip that was left out for its speed -> that speed, rad/s."""
    short: dict[str, int] = field(default_factory=dict)
    """Clip that was left out as too short to track -> its number of frames."""


@dataclass(frozen=True)
class MotionSource:
    """An npz of motions."""

    path: Path
    joint_names: tuple[str, ...] | None = None
    """Order of the angles; None is dm_control's."""
    dt: float = DT_S

    @classmethod
    def open(cls, path: str | os.PathLike[str], meta: str | os.PathLike[str] | None = None) -> MotionSource:
        """Check that the files can be read; `meta` is a JSON file with `joint_names` and `dt`."""
        path = Path(path)
        with naming(path):
            ArrayArchive(path).close()
        if meta is None:
            return cls(path)
        try:
            data = read_json(Path(meta), strict=False)
            return cls(path, tuple(str(name) for name in data["joint_names"]), float(data["dt"]))
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"{meta}: not a JSON object with 'joint_names' and 'dt': {error!r}") from None

    def names(self) -> list[str]:
        """Return the names of all clips."""
        with ArrayArchive(self.path) as archive:
            return sorted(archive)

    def read(self, name: str) -> Any:
        """Read a clip, [T, 63]."""
        with naming(f"{self.path}: clip {name!r}"), ArrayArchive(self.path) as archive:
            motion = np.asarray(archive[name])
            if motion.ndim != 2 or motion.shape[1] != 63 or motion.dtype.kind != "f":
                raise ValueError(f"must be floats [T, 63]; got {motion.dtype} {list(motion.shape)}")
            if not np.isfinite(motion).all() or (np.linalg.norm(motion[:, 3:7], axis=1) < 0.5).any():
                raise ValueError("not a pose in every frame: values are not finite, or a quaternion has length 0")
        return motion.astype(np.float64)


def convert(
    source: MotionSource,
    out: str | os.PathLike[str],
    clips: Sequence[str] | None = None,
    max_speed: float = MAX_SPEED,
    scale: float = SCALE,
    on_done: Callable[[int, int], object] = lambda done, total: None,
) -> ConversionReport:
    """Write the clips (all by default) for dm_control's `HDF5TrajectoryLoader`, atomically.

    `on_done` is called with the number of finished clips and their total.
    """
    from .kinematics import Kinematics

    if not scale > 0:
        raise ValueError(f"the scale must be positive; got {scale}")
    if Path(out).is_dir():
        raise ValueError(f"{str(out)!r} is a folder; give the name of a file")
    have = source.names()
    for name in clips or ():
        if name not in have:
            raise ValueError(unknown("clip", name, have))
    names = list(dict.fromkeys(clips)) if clips is not None else have
    kinematics = Kinematics()
    order = _order(source, kinematics.joint_names)
    report = ConversionReport()

    def convert_one(name: str, file: Any) -> None:
        motion = source.read(name)
        motion[:, :3] *= scale
        motion[:, 7:] = motion[:, 7:][:, order]
        motion, clipped = kinematics.clipped(motion)
        if len(motion) < SHORTEST:
            report.short[name] = len(motion)
        elif (speed := float(np.abs(np.diff(motion[:, 7:], axis=0)).max() / source.dt)) > max_speed:
            report.glitches[name] = speed
        else:
            features = kinematics.features(motion, source.dt)
            reserve(Path(file.filename).parent, sum(array.nbytes for array in features.values()))
            _write(file.create_group(name), features, source.dt)
            file.flush()
            report.written[name] = clipped

    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for done, name in enumerate(names, 1):
                convert_one(name, file)
                on_done(done, len(names))
        if not report.written:
            raise ValueError(
                f"no clip is left to write: {len(report.glitches)} have joint speeds above {max_speed} rad/s, "
                f"{len(report.short)} have fewer than {SHORTEST} frames"
            )

    atomic_write(Path(out), write)
    return report


def clip_lengths(path: str | os.PathLike[str]) -> dict[str, int]:
    """Return clip -> number of frames, of a file in the format of dm_control's loader."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such clip file")
    try:
        with h5py.File(path, "r") as file:
            check_whole_file(file)  # dm_control reads it
            return {name: int(group.attrs["num_steps"]) for name, group in sorted(file.items())}
    except (*DAMAGE, AttributeError) as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(
            f"{path}: not a file of motion clips in the format of dm_control's HDF5TrajectoryLoader: {error}"
        ) from None


def _order(source: MotionSource, wanted: Sequence[str]) -> list[int]:
    """Return the source's index of each wanted angle."""
    have = source.joint_names or tuple(wanted)
    if sorted(have) != sorted(wanted):
        different = sorted(set(have) ^ set(wanted))
        raise ValueError(
            f"the joints must be the CMU humanoid's {len(wanted)}; missing or unknown: {listing(different)}"
        )
    if not source.dt > 0:
        raise ValueError(f"the time between frames must be positive; got {source.dt}")
    return [have.index(name) for name in wanted]


def _write(group: Any, features: dict[str, Any], dt: float) -> None:
    group.attrs["num_steps"] = len(features["position"])
    group.attrs["dt"] = dt
    group.create_group("props")
    walker = group.create_group("walkers/walker_0")
    walker.attrs["name"] = "walker"
    walker.attrs["model"] = CMU_2020
    walker.attrs["mass"] = 0.0  # the walker keeps its own
    walker.create_group("scaling")
    walker.create_group("markers")
    for name, values in features.items():
        walker.create_dataset(name, data=np.ascontiguousarray(values.T, dtype=np.float32))  # time is the last axis


# -- the program -------------------------------------------------------------------------------------------------------


@dataclass
class Clips:
    """Convert joint angles to motion clips in the format of dm_control's tracking task."""

    npz: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="CLIPS_NPZ")]
    """One array [T, 63] per clip: root position, root quaternion (wxyz), 56 hinge angles."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT_HDF5")]
    """File to write."""
    meta: Annotated[Path | None, tyro.conf.arg(metavar="JSON")] = None
    """File with `joint_names` (order of the angles) and `dt`; without it, dm_control's order and 0.03 s."""
    clip_list: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Only the clips that this text file names, one per line."""
    clips: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CLIP …")] = ()
    """Only these clips."""
    max_speed: float = MAX_SPEED
    """Leave out clips with a joint faster than this (rad/s)."""
    scale: float = SCALE
    """Factor on root positions; 1 for motions that were fitted to the V2020 walker itself."""


def main(args: list[str]) -> None:
    os.environ.setdefault("MUJOCO_GL", "disabled")  # nothing is drawn, so dm_control needs no display
    options = tyro.cli(Clips, prog="python -m body_transformer.imitation.tasks.mocap.clips", args=args)
    source = MotionSource.open(options.npz, options.meta)
    wanted, missing = list(options.clips), []
    if options.clip_list is not None:
        have = set(source.names())
        listed = read_clip_list(options.clip_list)
        wanted += [name for name in listed if name in have]
        missing = [name for name in listed if name not in have]
        if not wanted:
            raise ValueError(f"none of the {len(listed)} clips of {options.clip_list} is in {options.npz}")
    with Progress(transient=True) as progress:
        bar = progress.add_task("clips")

        def show(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        report = convert(source, options.out, wanted or None, options.max_speed, options.scale, show)
    clipped = 100 * float(np.mean(list(report.written.values())))
    print(f"{len(report.written)} clips in {options.out}; {clipped:.1f} % of all angles were clipped to their range")
    for title, names in (
        ("not in the npz", missing),
        ("left out, a joint is too fast (rad/s)", [f"{name} ({speed:.0f})" for name, speed in report.glitches.items()]),
        ("left out, too short (frames)", [f"{name} ({number})" for name, number in report.short.items()]),
    ):
        if names:
            print(f"{title}: {', '.join(map(printable, names))}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(f"clips: {printable(error)}")
