"""BodyModel in rsl_rl without mjlab, as in Isaac Lab: the layout is data, and rsl_rl's own runner trains it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rsl_rl", reason="needs the extra 'rl'")

TRAINING = '''
import sys

sys.modules["mjlab"] = None  # its import is an ImportError

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from body_transformer import BodyGraph, Layout, Policy, Term
from body_transformer.rl.rsl_rl_model import NAME

JOINTS = ["shoulder", "elbow", "wrist"]
ARM = """<mujoco><worldbody><body name="upper"><joint name="shoulder"/><geom size=".1"/>
<body name="lower"><joint name="elbow"/><geom size=".1"/>
<body name="hand"><joint name="wrist"/><geom size=".1"/></body></body></body></worldbody></mujoco>"""


class Reach(VecEnv):
    """Each joint must reach its target; the action is its velocity."""

    num_envs, num_actions, max_episode_length, device, cfg = 32, 3, 20, "cpu", {}

    def __init__(self):
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)
        self.pos, self.target = torch.zeros(2, self.num_envs, 3)

    def get_observations(self):
        return TensorDict({"policy": torch.cat([self.pos, self.target], -1)}, batch_size=[self.num_envs])

    def step(self, actions):
        self.pos = self.pos + 0.2 * actions.clamp(-1, 1)
        self.episode_length_buf += 1
        rewards = -(self.pos - self.target).square().sum(-1)
        dones = self.episode_length_buf >= self.max_episode_length
        self.episode_length_buf[dones], self.pos[dones] = 0, 0.0
        self.target[dones] = 2 * torch.rand(int(dones.sum()), 3) - 1
        return self.get_observations(), rewards, dones.long(), {"time_outs": dones}


torch.manual_seed(0)
graph = BodyGraph.from_xml(ARM)
obs = [Term.joints("joint_pos", JOINTS), Term.joints("target", JOINTS)]
layout = Layout(graph, obs, Term.joints("velocity", JOINTS)).to_dict()
policy = {"variant": "bot-hard", "embed_dim": 16, "num_layers": 2, "ff_dim": 16}
model = {"class_name": NAME, "layout": layout, "policy": policy, "hidden_dims": [64], "activation": "elu"}
cfg = {
    "actor": {**model, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.5}},
    "critic": {**model},
    "algorithm": {"class_name": "PPO", "num_learning_epochs": 4, "num_mini_batches": 4, "learning_rate": 2e-3},
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "num_steps_per_env": 20,
    "save_interval": 100,
}
cfg["algorithm"] |= {"schedule": "fixed", "rnd_cfg": None}


def mean_reward(runner, env):
    act, total = runner.get_inference_policy(), 0.0
    with torch.inference_mode():
        for _ in range(env.max_episode_length):
            _, rewards, *_ = env.step(act(env.get_observations()))
            total += float(rewards.mean())
    return total


runner = OnPolicyRunner(Reach(), cfg, device="cpu")
before = mean_reward(runner, Reach())
runner.learn(40)
after = mean_reward(runner, Reach())
runner.alg.get_policy().policy().save(sys.argv[1])
assert Policy.load(sys.argv[1]).layout.to_dict() == layout
assert not any(name.split(".")[0] == "mjlab" and module for name, module in sys.modules.items())
print("RESULT", before, after)
'''


def test_rsl_rls_own_runner_trains_it_where_mjlab_is_not_installed(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", TRAINING, str(tmp_path / "policy")], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr[-3000:]
    before, after = map(float, run.stdout.split("RESULT")[1].split())
    assert before < -3.0
    assert after > 0.3 * before, "most of the distance is gone"


def test_a_model_without_a_layout_names_the_missing_line():
    from body_transformer.rl.rsl_rl_model import BodyModel

    with pytest.raises(ValueError, match="needs a layout") as error:
        BodyModel({}, {"actor": ["policy"]}, "actor", 3, policy={}, hidden_dims=[64], activation="elu")
    said = str(error.value)
    assert 'class_name="body_transformer.rl.rsl_rl_config:BodyPPO"' in said
    assert "layout=layout.to_dict()" in said
    assert (Path(__file__).parents[2] / "docs" / "isaac_lab.md").is_file()
    with pytest.raises(ValueError, match="unknown setting 'polcy'; did you mean 'policy'"):
        BodyModel({}, {"actor": ["policy"]}, "actor", 3, polcy={})
