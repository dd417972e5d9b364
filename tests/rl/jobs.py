"""Small training runs on the CPU."""

import json
import shutil
from contextlib import closing

import pytest

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from body_transformer import Policy, PolicyConfig
from body_transformer.checkpoint import newest_checkpoint
from body_transformer.rl.config import RlConfig
from body_transformer.rl.train import RlJob, TrainingLoop, train
from body_transformer.run import Run
from body_transformer.schema import plain
from body_transformer.training.progress import Progress
from body_transformer.training.ranks import Ranks

SMALL = PolicyConfig(
    variant="bot-mix", embed_dim=8, num_layers=2, ff_dim=8, head="gaussian", init="normal", obs_clip=5.0
)
QUICK = {"num_envs": 4, "num_steps_per_env": 4, "num_mini_batches": 2, "num_learning_epochs": 2, "eval_episodes": 2}


def job(folder, max_iterations, resume=False, task="humanoid-mod", **options) -> RlJob:
    config = RlConfig(task, max_iterations=max_iterations, **QUICK | {"eval_every": None} | options)
    run = Run.open(folder) if resume else Run.create(folder, {"name": task, "rl": plain(config)})
    return RlJob(run, SMALL, config, seed=0, device="cpu", resume=resume)


def run(job: RlJob) -> Policy:
    """Run a training quietly and return its policy."""
    return train(job, Progress(quiet=True))


def started(job: RlJob, ranks: Ranks = Ranks()) -> closing[TrainingLoop]:  # noqa: B008
    """Return the quiet training loop of one process, which is closed at the end of a `with` statement."""
    return closing(TrainingLoop(job, ranks, Progress(quiet=True)))


def lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def check_exact_resume(folder, **settings) -> None:
    """Check that a run which is resumed after two of four iterations has the checkpoint of an uninterrupted one."""
    settings = {"num_steps_per_env": 16} | settings
    with started(job(folder / "whole", 4, **settings)) as loop:
        iterate(loop, 2)
        shutil.copytree(folder / "whole", folder / "resumed", symlinks=True)
        iterate(loop, 2)
    with started(job(folder / "resumed", 4, resume=True, **settings)) as loop:
        iterate(loop, 2)
    expected, found = (newest_checkpoint(folder / name).state.tensors for name in ("whole", "resumed"))
    assert found.keys() == expected.keys()
    assert [name for name in expected if not found[name].equal(expected[name])] == []


def iterate(loop: TrainingLoop, count: int) -> None:
    """Take some iterations, then write a checkpoint."""
    for _ in range(count):
        loop.iterate(None)
    loop.save()
