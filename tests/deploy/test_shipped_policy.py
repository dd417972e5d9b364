"""The shipped policy of a1-walk: exported, loaded, and on the simulated robot.

The robot's body, link and network are those of `bot deploy`, but its clock advances only while the loop sleeps. So a
rollout is the same on every machine, however busy.
"""

import math
from pathlib import Path

import numpy as np
import pytest

from body_transformer import Policy
from body_transformer.deploy.config import contract_sections
from body_transformer.deploy.contract import Contract
from body_transformer.deploy.link import FROM_ROBOT, Kind, Link
from body_transformer.deploy.payloads import pack_command, pack_names, unpack_names, unpack_state
from body_transformer.deploy.robot import Command, Robot, State
from body_transformer.deploy.robots.sim_options import SimOptions, SimReport
from body_transformer.deploy.runtime import RunResult, Runtime
from body_transformer.deploy.runtime_config import RuntimeConfig
from body_transformer.experiment import load_experiment

from .datagrams import KEY, SESSION, udp
from .virtual_robot import ROBOT_JOINTS, VirtualTime

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("mujoco")

from body_transformer.deploy.export import export, find_trained
from body_transformer.deploy.policy import TOLERANCE, OnnxPolicy
from body_transformer.deploy.robots.sim_process import SimProcess


@pytest.fixture(scope="module")
def shipped(tmp_path_factory) -> Path:
    """Return the folder that `bot export pretrained:a1-walk` writes."""
    return export(find_trained("pretrained:a1-walk"), tmp_path_factory.mktemp("shipped") / "robot").folder


class SteppedRobot(Robot):
    """The simulated robot and its controller's side of the link, in this process and in virtual time."""

    joints = ROBOT_JOINTS

    def __init__(self, time: VirtualTime, **options: object) -> None:
        self.time, self.period_s = time, 1 / SimOptions(**options).state_hz
        self.process, self.link = SimProcess(SimOptions(**options), udp(), KEY), Link(udp(), FROM_ROBOT, KEY)
        self.due_s = time.now_s

    def __enter__(self) -> "SteppedRobot":
        self.link.open(self.process.link.address, SESSION)
        while self.link.joints == 0:  # the network may lose a HELLO, or its answer
            self.link.send(Kind.HELLO, b"", self.time.now_s)
            self.time.now_s += 0.05
            self.go_on()
            for packet in self.link.receive():
                if packet.kind is Kind.CHALLENGE:
                    self.link.agree_nonce(packet.payload)
                    self.link.send(Kind.OPEN, pack_names(self.joints), self.time.now_s)
                elif packet.kind is Kind.WELCOME:
                    assert unpack_names(packet.payload) == self.joints
                    self.link.agree(self.joints)
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.link.close()
        self.link.close()

    def go_on(self) -> None:
        """Advance the robot's clock to ours."""
        while self.due_s <= self.time.now_s + 1e-9:
            self.process.tick()
            self.due_s += self.period_s

    def read(self) -> State | None:
        self.go_on()
        states = [packet for packet in self.link.receive() if packet.kind is Kind.STATE]
        return unpack_state(states[-1], 12, self.time.now_s)[0] if states else None

    def send(self, command: Command) -> Command:
        self.link.send(Kind.COMMAND, pack_command(command), self.time.now_s)
        return command

    def begin_rollout(self) -> None:
        self.mark(b"begin")

    def end_rollout(self) -> None:
        self.mark(b"end")

    def mark(self, what: bytes) -> None:
        for _ in range(5):
            self.link.send(Kind.MARK, what, self.time.now_s)


def walk(folder: Path, seconds: float = 5.0, **options: object) -> tuple[RunResult, SimReport]:
    time = VirtualTime()
    config = RuntimeConfig(seconds=seconds, loop_hz=200.0, rehearse=False)
    with SteppedRobot(time, **options) as robot:
        policy = OnnxPolicy(folder)
        runtime = Runtime(policy.contract, policy, robot, config, clock=time.clock, sleep=time.sleep)
        result = runtime.run()
        return result, robot.process.report()


# -- export ------------------------------------------------------------------------------------------------------------


def test_the_shipped_policy_is_exported_and_agrees_with_pytorch(shipped):
    policy = find_trained("pretrained:a1-walk").policy
    run = OnnxPolicy(shipped)  # refuses deviations
    assert run.verify() <= TOLERANCE
    obs = np.random.default_rng(0).normal(size=(32, 48)).astype(np.float32)
    import torch

    expected = policy(torch.from_numpy(obs)).detach().numpy()
    np.testing.assert_allclose([run(row).copy() for row in obs], expected, atol=TOLERANCE, rtol=TOLERANCE)


def test_the_shipped_policys_contract_is_that_of_the_experiment(shipped):
    contract, known = Contract.load(shipped), load_experiment("a1-walk")
    assert (contract.experiment, contract.training.variant) == ("a1-walk", "bot-mix")
    assert Policy.load(shipped).layout == known.layout()
    sections = contract_sections(known.deploy, known.robot.path, known.layout(), bound=1.0)
    assert (contract.obs, contract.control) == (sections.obs, sections.control)


# -- walking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"start": "lying"}, {"latency_ms": 20.0}], ids=["as it is", "from the floor", "20 ms of latency"]
)
def test_the_shipped_policy_walks_on_the_simulated_robot(shipped, options):
    """benchmarks/walk.py counts successes over 10 s, also where datagrams get lost."""
    result, report = walk(shipped, **options)
    assert result.stop is None
    assert result.policy_seconds == pytest.approx(5.0, abs=0.1)
    assert not report.fell
    assert report.duration_s == pytest.approx(5.0, abs=0.1)
    assert 0.3 < report.mean_speed_mps < 0.7
    assert math.hypot(report.distance_m, report.sideways_m) > 1.0  # not on the spot
    assert report.timeouts == 0


def test_an_untrained_policy_does_not_walk(shipped, folder):
    """This shows that the test above can fail."""
    result, report = walk(folder)
    assert result.stop is not None or report.fell or not 0.3 < report.mean_speed_mps < 0.7
