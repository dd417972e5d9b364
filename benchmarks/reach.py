"""Measure how much an untrained policy's action depends on observations a given number of hops away.

    python benchmarks/reach.py

Rows are variants with an initialisation; columns are numbers of hops between the action's node and the observation's
node. Entries are means of |d action / d observation| (both normalised) over 64 random observations and 5 seeds.
"""

from dataclasses import replace

import numpy as np
import torch

from body_transformer import Policy
from body_transformer.experiment import load_experiment

EXPERIMENT, NUM_OBS, NUM_SEEDS = "humanoid-mod", 64, 5
INITS = ("normal", "far", "torch")
VARIANTS = ("transformer", "bot-mix", "bot-hard")


def reach(variant: str, init: str) -> list[float]:
    """Return the mean influence by number of hops."""
    experiment = load_experiment(EXPERIMENT)
    layout = experiment.layout()
    hops = layout.graph.hops[np.ix_(layout.action_node_ids, layout.obs_node_ids)]  # [A, O]
    found = np.zeros(layout.graph.diameter + 1)
    for seed in range(NUM_SEEDS):
        torch.manual_seed(seed)
        policy = Policy(layout, replace(experiment.policy_config(variant), init=init))
        obs = torch.randn(NUM_OBS, layout.obs_dim)
        slopes = torch.autograd.functional.jacobian(lambda obs, policy=policy: policy(obs).sum(0), obs)  # [A, B, O]
        influence = slopes.abs().mean(1).numpy()
        found += [influence[hops == distance].mean() for distance in range(len(found))]
    return list(found / NUM_SEEDS)


def main() -> None:
    rows = {(variant, init): reach(variant, init) for init in INITS for variant in VARIANTS}
    distances = range(len(next(iter(rows.values()))))
    print("| variant | init | " + " | ".join(f"{hops} hops" for hops in distances) + " |")
    print("|" + "---|" * (len(distances) + 2))
    for (variant, init), values in rows.items():
        print(f"| {variant} | {init} | " + " | ".join(f"{value:.0e}" for value in values) + " |")


if __name__ == "__main__":
    main()
