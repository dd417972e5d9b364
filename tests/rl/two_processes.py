"""Train in several processes and write the actions of the policy of each, which must be equal.

torchrun --nproc-per-node 2 tests/rl/two_processes.py FOLDER
"""

import os
import sys
from pathlib import Path

import torch

from body_transformer import PolicyConfig
from body_transformer.rl.config import RlConfig
from body_transformer.rl.train import RlJob, train
from body_transformer.run import Run
from body_transformer.schema import plain
from body_transformer.training.progress import Progress

if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), os.environ["RANK"]
    config = RlConfig(
        "humanoid-mod",
        num_envs=8,
        num_steps_per_env=4,
        num_mini_batches=2,
        num_learning_epochs=2,
        max_iterations=2,
        eval_episodes=2,
    )
    run = Run.create(folder / "run", {"rl": plain(config)}) if rank == "0" else Run(folder / "run")
    policy = PolicyConfig(embed_dim=8, num_layers=2, ff_dim=8, head="gaussian", init="normal")
    learned = train(RlJob(run, policy, config, seed=0, device="cpu"), Progress(quiet=True))
    obs = torch.linspace(-1, 1, 500).reshape(5, 100)
    (folder / f"actions{rank}.txt").write_text(repr(learned(obs).tolist()))
