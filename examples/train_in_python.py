"""Clone demonstrations in a training loop of your own: python examples/train_in_python.py demos.npz my-policy 2000"""

import sys
from pathlib import Path

import numpy as np
import torch

from body_transformer import BodyGraph, Layout, Policy, PolicyConfig, Term


def main(data: str, out: str, num_steps: int) -> None:
    """Train a policy for the arm and save it."""
    graph = BodyGraph.from_file(Path(__file__).with_name("arm.xml"))
    obs = [Term.joints("joint_pos", graph.joints), Term.joints("joint_vel", graph.joints), Term.root("goal", 3)]
    layout = Layout(graph, obs, Term.actuators("actions", graph.actuators))
    policy = Policy(layout, PolicyConfig(variant="bot-mix", num_layers=4))

    demos = np.load(data)
    inputs = torch.as_tensor(np.concatenate([demos[term.name] for term in obs], axis=1), dtype=torch.float32)
    actions = torch.as_tensor(demos["actions"], dtype=torch.float32)
    policy.fit_normalizer(inputs)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    for step in range(1, num_steps + 1):
        batch = torch.randint(len(inputs), (64,))
        loss = (policy(inputs[batch]) - actions[batch]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 500 == 0 or step == num_steps:
            print(f"step {step}: loss {loss.item():.5f}")
    policy.save(out)
    print(f"wrote {out}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
