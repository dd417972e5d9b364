"""Run an exported policy of the arm with ONNX Runtime, without PyTorch: python examples/run_exported.py DIR"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from arm_task import Reach

NUM_EPISODES = 20


def main(folder: str) -> None:
    """Play episodes and print how many reach the goal."""
    session = onnxruntime.InferenceSession(str(Path(folder) / "policy.onnx"))
    (given,) = session.get_inputs()
    contract = json.loads((Path(folder) / "policy.json").read_text(encoding="utf-8"))["contract"]
    terms = [term["name"] for term in contract["obs"]]
    env, num_reached = Reach(), 0
    for seed in range(NUM_EPISODES):
        obs, _ = env.reset(seed=10_000 + seed)
        for _ in range(100):
            flat = np.concatenate([obs[name] for name in terms], dtype=np.float32)
            (actions,) = session.run(None, {given.name: flat[None]})
            obs, _, _, _, info = env.step(actions[0].clip(env.low, env.high))
        num_reached += int(info["reached"])
    print(f"{num_reached} of {NUM_EPISODES} episodes reach the goal")


if __name__ == "__main__":
    main(sys.argv[1])
