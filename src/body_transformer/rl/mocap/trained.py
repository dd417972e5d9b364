"""Trained experts of mocap-expert, which record demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...body.compare import check_same
from ...body.layout import UNUSED, Layout
from ...errors import listing
from ...experiment import load_experiment
from ...files import digest
from ...imitation.tasks.mocap.generate import Pilot
from ...model.policy import Policy
from ...policy_folder import WEIGHTS, PolicyFolder, find_policy, read_description
from ...run import Run, experiment_of
from ..registry import task_options
from .motions import ClipFile
from .options import NAME, ExpertOptions
from .servo import Servo

if TYPE_CHECKING:
    from ...imitation.tasks.mocap.environment import MocapEnv

CLIPS = ("clips", "train_clips", "validation_clips")
"""Options that name the clips; those of the expert's own run are the default."""


@dataclass(frozen=True)
class Expert:
    """A trained expert and the clips to record. It is small and can be pickled; `policy` reads the weights."""

    folder: Path
    options: ExpertOptions
    weights: str
    """Digest of the weights."""

    @classmethod
    def load(cls, source: str, clips: Mapping[str, str | None]) -> Expert:
        """Check an expert, a run folder or `pretrained:NAME`, and its clips.

        `clips` has a value or None for each of CLIPS. If one of them is given, none is taken from the expert's run.
        """
        found = find_policy(source)
        trained = _run_options(found)
        if trained is None:
            raise ValueError(
                f"{source!r} is not an expert of {NAME}: it was trained for {experiment_of(found) or 'an unknown task'}"
                f"; give a run of `bot train {NAME}` or pretrained:{NAME}"
            )
        given = {name: value for name, value in clips.items() if value is not None}
        places = given or {name: trained[name] for name in CLIPS if name in trained}
        if "clips" not in places:
            raise ValueError(f"{source!r} does not name its motion clips: give the option clips FILE.hdf5")
        kept = {name: value for name, value in trained.items() if name not in (*CLIPS, "only")}
        options = task_options(NAME, {**kept, **places})
        layout = Layout.from_dict(read_description(found.path)["policy"]["layout"])
        check_same(layout, load_experiment(NAME).layout(), ("expert", f"experiment {NAME!r}"))
        options.clip_file()
        return cls(found.path.resolve(), options, digest(found.path / WEIGHTS))

    @property
    def clips(self) -> ClipFile:
        """The clips, checked again."""
        return self.options.clip_file()

    def policy(self) -> Policy:
        """Read the policy."""
        return Policy.load(self.folder).eval()

    def pilot(self) -> Pilot:
        """Return the expert as a controller in dm_control's physics."""
        title = (
            f"{NAME} of body_transformer, weights {self.weights[:16]}, action_scale {self.options.action_scale}, "
            "not an expert of MoCapAct's"
        )
        return Pilot(title, self.controller)

    def controller(self, env: MocapEnv) -> Callable[[], NDArray[np.float64]]:
        """Return the expert's mean control in an environment of dm_control."""
        torch.set_num_threads(1)  # one process per core
        policy, servo = self.policy(), Servo.of_walker("cpu", torch.float32)
        used = used_entries(load_experiment("mocapact").layout())
        order = list(servo.file_order)

        @torch.inference_mode()
        def control() -> NDArray[np.float64]:
            target = (env.task.reference(name, 1)[order] for name in ("joints", "joints_velocity"))
            position, velocity = (torch.from_numpy(values).float()[None] for values in target)
            correction = self.options.action_scale * policy(torch.from_numpy(env.obs[used])[None])
            found: NDArray[np.float64] = servo.corrected(position, velocity, correction)[0].double().numpy()
            return found

        return control


def used_entries(layout: Layout) -> NDArray[np.int64]:
    """Return the entries of MoCapAct's vector that an expert observes, which a layout must use in the same order."""
    observed = [(term.name, term.size) for term in load_experiment(NAME).obs]
    used = [(term.name, term.size) for term in layout.obs if term.kind != "unused"]
    if used != observed or layout.action_dim != 56:
        different = [name for name, _ in (*used, *observed) if (name in dict(used)) != (name in dict(observed))]
        raise ValueError(
            f"experts of {NAME} record the observation of the experiment mocapact, which this layout does not have: "
            f"{'it differs in ' + listing(dict.fromkeys(different)) if different else 'order, sizes or actions differ'}"
        )
    return np.flatnonzero(layout.obs_node_ids != UNUSED)


def _run_options(found: PolicyFolder) -> dict[str, Any] | None:
    """Return the options of the task that an expert was trained with; None if it is not an expert."""
    if found.run is not None:
        settings = Run.open(found.run).description().get("rl") or {}
        return dict(settings.get("options") or {}) if settings.get("task") == NAME else None
    return {} if experiment_of(found) == NAME else None
