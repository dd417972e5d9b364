"""mocap-expert: track any of many motion clips, as in dm_control's `MultiClipMocapTracking`, which MoCapAct uses.

The observation is the paper's: the 1,294 entries of MoCapAct's vector that its allocation uses (see
experiments/mocapact.yaml). The control of a servo follows the next frame, and compensates springs, damping and the
activation's lag (see servo.py). `action_scale` x the action is added, and the sum is clipped to [-1, 1]. This final
control is what MoCapAct's files call an action. An episode fails if the error is above 0.3. It ends with the clip, or
after 300 steps. Training begins at any frame of the training clips (see sampling.py). Evaluations begin at the first
frames of MoCapAct's snippets, with activations of 0. Their return is that of dm_control's reward alone.

Where training differs from dm_control's task:
- Physics runs in float32 without noslip iterations, with pyramidal cones and few solver iterations.
- Fingers and thumbs have no joints. Clips hold them at 0; in dm_control's model, the servos do.
- Touch and torque sensors are those of the last physics step, 5 ms older than dm_control's, and 0 in the first
  observation of an episode.

`bot eval --simulator mujoco` evaluates in dm_control's own task and physics (see dm_control.py).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mjlab.scene import SceneCfg
from mjlab.terrains import TerrainEntityCfg

from ...experiment import load_experiment
from ...imitation.tasks.mocap.snippets import MAX_SNIPPET_STEPS
from ...video import View
from ..envs.terms import ACTOR, CRITIC, RewardTerm, alive, obs_terms
from ..registry import TaskSpec
from . import terms
from .dm_control import play
from .model import DECIMATION, PHYSICS_DT, robot, simulation
from .options import NAME, TERMINATION_ERROR, ExpertOptions
from .robots import ExpertTask

MAX_STEPS = 300
"""Of an episode in training: nine seconds."""


def task(seed: int, options: ExpertOptions) -> ExpertTask:
    """Return the task of training."""
    experiment = load_experiment(NAME)
    actor = obs_terms(experiment.obs, terms.OBSERVATIONS)
    (control,) = experiment.actions
    kernel = options.kernel_weight
    return ExpertTask(
        obs={ACTOR: actor, CRITIC: (*actor, *obs_terms(experiment.critic_obs, terms.CRITIC_OBSERVATIONS))},
        actions=control,
        rewards={
            "comic": RewardTerm(terms.comic, 1.0),
            "joints": RewardTerm(terms.joints, kernel),
            "joint_velocities": RewardTerm(terms.joint_velocities, kernel / 3),
            "body_rotations": RewardTerm(terms.body_rotations, kernel),
            "alive": RewardTerm(alive, options.alive_weight),
        },
        failures=(partial(terms.lost, max_error=options.max_error),),
        time_outs=(terms.at_end,),
        physics_dt=PHYSICS_DT,
        decimation=DECIMATION,
        max_steps=MAX_STEPS,
        view=View(body="robot/root"),
        scene=SceneCfg(
            env_spacing=0.0,
            terrain=TerrainEntityCfg(terrain_type="plane"),
            entities={"robot": robot(options.freeze_fingers)},
        ),
        simulation=simulation(options.cone, options.iterations, options.ls_iterations, dense=options.freeze_fingers),
        graph=experiment.robot.graph(),
        clips=options.clip_file(),
        options=options,
    )


def evaluated(trained: ExpertTask, num_envs: int) -> ExpertTask:
    """Return the task of an evaluation on at most `num_envs` snippets of each split."""
    snippets = trained.clips.evaluation_snippets(num_envs)
    return replace(
        trained,
        rewards={"comic": trained.rewards["comic"]},
        failures=(partial(terms.lost, max_error=TERMINATION_ERROR),),
        snippets=tuple(snippets),
        num_envs=len(snippets),
        max_steps=MAX_SNIPPET_STEPS,
    )


SPEC = TaskSpec(
    task=task,
    evaluated=evaluated,
    options=ExpertOptions,
    paths=("clips", "train_clips", "validation_clips"),
    play=play,
)
