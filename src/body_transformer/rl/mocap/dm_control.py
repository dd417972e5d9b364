"""Evaluation of an expert in dm_control's own task and physics: noslip iterations, elliptic cones, moving fingers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from ...body.layout import UNUSED
from ...experiment import load_experiment
from ...imitation.tasks.mocap.snippets import Snippet
from ...imitation.tasks.mocap.task import MAX_PROCESSES, make_env
from ...imitation.vector_env import EnvSpec, VectorEnv, allowed_processes
from ...model.policy import Policy
from ..episode_metrics import EpisodeMetrics, PlannedEpisode
from .motions import ClipFile, Motions
from .options import ExpertOptions
from .servo import Servo

Floats = NDArray[np.float32]


def play(policy: Policy, options: ExpertOptions, count: int, progress: Callable[..., object]) -> EpisodeMetrics:
    """Run an episode from the start of at most `count` snippets of each split, with one process per core.

    The metrics are those of `rl.evaluate.rollouts`. `progress` is called with the number of finished episodes and their
    total.
    """
    clips = options.clip_file()
    snippets = clips.evaluation_snippets(count)
    servo = Servo.of_walker("cpu", torch.float32)
    follow = following(servo, clips, snippets)
    layout, device = load_experiment("mocapact").layout(), policy.normalizer.shift.device
    used = np.flatnonzero(layout.obs_node_ids != UNUSED)

    @torch.inference_mode()
    def correct(obs: Floats) -> Floats:
        """Return the corrections [B, 56] for MoCapAct's observations [B, 2868]."""
        mean = policy(torch.from_numpy(obs[:, used]).to(device)).cpu()
        corrections: Floats = (options.action_scale * mean).masked_fill(servo.is_finger, 0.0).numpy()
        return corrections

    returns, lengths, steps = np.zeros((3, len(snippets)))
    survived = np.zeros(len(snippets), dtype=bool)
    num_lanes = allowed_processes(None, min(MAX_PROCESSES, len(snippets)))
    make = partial(make_env, clips.path, layout)
    spec = EnvSpec(make, layout.action_dim, ("max_steps",), own_process=True)
    finished = 0
    with closing(VectorEnv(spec, num_lanes, num_lanes)) as envs:
        for step in envs.play([{"options": {"snippet": snippet}} for snippet in snippets], correct, follow):
            returns[step.episodes] += step.rewards
            lengths[step.episodes] += 1
            steps[step.episodes] = step.infos["max_steps"]
            survived[step.episodes] = ~step.terminated
            finished += int(step.over.sum())
            progress(completed=finished, total=len(snippets))
    plan = [
        PlannedEpisode(clips.splits[snippet.clip], snippet.clip, int(most))
        for snippet, most in zip(snippets, steps, strict=True)
    ]
    found = {"total_reward": returns, "length": lengths, "survived": survived}
    return EpisodeMetrics({name: torch.from_numpy(values) for name, values in found.items()}, plan)


def following(servo: Servo, clips: ClipFile, snippets: list[Snippet]) -> NDArray[np.float64]:
    """Return the controls that follow each snippet, [snippets, steps, 56], to which corrections are added."""
    motions = Motions.read(clips, servo.file_order, "cpu", torch.float32)
    spans = [motions.frames(snippet) for snippet in snippets]
    controls = np.zeros((len(snippets), max(last - first for first, last in spans), len(servo.joints)))
    for own, (first, last) in zip(controls, spans, strict=True):
        ahead = slice(first + 1, last + 1)
        own[: last - first] = servo.control(motions.joint_pos[ahead], motions.joint_vel[ahead])
    return controls
