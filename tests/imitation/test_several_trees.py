"""Two arms on a table, each with a gripper: inspected, trained, exported and run, from files of the user."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from body_transformer import Policy
from body_transformer.cli.main import main

ARM = """<body name="{0}/base"><geom size=".1"/><body name="{0}/arm"><joint name="{0}/shoulder"/><geom size=".1"/>
  <body name="{0}/hand"><joint name="{0}/wrist"/><geom size=".1"/>
    <body name="{0}/left_finger"><joint name="{0}/left_finger" type="slide"/><geom size=".1"/></body>
    <body name="{0}/right_finger"><joint name="{0}/right_finger" type="slide"/><geom size=".1"/></body>
  </body></body></body>"""
COUPLING = '<joint joint1="{0}/left_finger" joint2="{0}/right_finger"/>'
DRIVEN = ("shoulder", "wrist", "left_finger")
MOTORS = "".join(f'<position name="{{0}}/{joint}" joint="{{0}}/{joint}"/>' for joint in DRIVEN)
SIDES = ("left", "right")
ROBOT = f"""<mujoco><worldbody><body name="table"/>{"".join(map(ARM.format, SIDES))}</worldbody>
<equality>{"".join(map(COUPLING.format, SIDES))}</equality><actuator>{"".join(map(MOTORS.format, SIDES))}</actuator>
</mujoco>"""
JOINTS = [f"{side}/{joint}" for side in SIDES for joint in DRIVEN]


def write_experiment(folder: Path, root: str) -> Path:
    (folder / "arms.xml").write_text(ROBOT)
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((60, 9)).astype(np.float32)
    np.savez(folder / "demos.npz", obs=obs, actions=obs[:, :6], episode_ends=[30, 60])
    file = folder / "arms.yaml"
    file.write_text(f"""
title: two arms on a table
robot: {{file: arms.xml, root: {root}}}
obs_dim: 9
obs:
  - {{name: goal, kind: root, dim: 3}}
  - {{name: joint_pos, kind: joints, of: {json.dumps(JOINTS)}}}
action_dim: 6
actions:
  - {{name: ctrl, kind: actuators, of: {json.dumps(JOINTS)}}}
critic: false
policy: {{variant: bot-hard, embed_dim: 8, num_layers: 4, num_heads: 2, ff_dim: 8}}
imitation: {{reader: npz, data: {folder / "demos.npz"}, num_steps: 3, batch_size: 16}}
""")
    return file


@pytest.mark.parametrize(("root", "home", "hops"), [("[left/base, right/base]", "left/base", 7), ("world", "world", 8)])
def test_two_arms_are_trained_and_exported_from_files_of_the_user(root, home, hops, tmp_path, capsys):
    pytest.importorskip("onnx", reason="needs the extra 'deploy'")
    file, run = write_experiment(tmp_path, root), tmp_path / "run"
    assert main(["train", str(file), "--cpu", "--no-eval", "--quiet", "--out", str(run)]) == 0
    assert main(["export", str(run), "--out", str(tmp_path / "export")]) == 0

    policy, exported = Policy.load(run), Policy.load(tmp_path / "export")
    graph = policy.layout.graph
    assert graph.mimics == {f"{side}/right_finger": f"{side}/left_finger" for side in SIDES}
    assert policy.layout.obs_ids(home) == [0, 1, 2]
    assert graph.hops[graph.index("left/left_finger"), graph.index("right/left_finger")] == hops
    obs = torch.randn(4, 9)
    torch.testing.assert_close(exported(obs), policy(obs))

    capsys.readouterr()
    assert main(["inspect", str(file), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["root"], content.get("other_roots", [])) == (graph.root, list(graph.other_roots))


def test_observations_of_one_arm_reach_the_other_only_through_enough_layers(tmp_path):
    run = tmp_path / "run"
    file = write_experiment(tmp_path, "[left/base, right/base]")
    assert main(["train", str(file), "--cpu", "--no-eval", "--quiet", "--out", str(run)]) == 0
    policy = Policy.load(run)
    obs = torch.zeros(1, 9, requires_grad=True)
    policy(obs)[0, JOINTS.index("right/shoulder")].backward()
    hops = policy.layout.graph.hops[policy.layout.graph.index("right/arm"), policy.layout.obs_node_ids]
    names = np.array(policy.layout.obs_names())
    seen, expected = set(names[obs.grad[0] != 0]), set(names[hops <= policy.config.num_layers])
    assert seen == expected
    assert "joint_pos[left/wrist]" in seen
    assert "joint_pos[left/left_finger]" not in seen
