"""The statements of docs/deployment.md and the installation on a robot's computer match the code."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from body_transformer.deploy.contract import FIXED, TUNABLE
from body_transformer.deploy.robots.sim import MAX_ROUND_TRIP_S
from body_transformer.deploy.robots.sim_options import SimOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
FAULTS = PAGE[PAGE.index("`--faults` takes these names, each once") : PAGE.index("`--robot sim` simulates")]
INSTALL = ("pip wheel --no-deps --wheel-dir build/wheel .", "pip install -r requirements-robot.txt",
           "pip install --no-deps build/wheel/*.whl")  # fmt: skip


def test_the_page_lists_every_fault_with_its_default():
    rows = [line.split("|")[1:3] for line in FAULTS.splitlines() if line.startswith("| `")]
    names = [name for names, _ in rows for name in re.findall(r"`(\w+)`", names)]
    assert sorted(names) == sorted(field.name for field in fields(SimOptions))
    said = {name: default.strip() for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    for name in ("latency_ms", "noise", "payload_kg", "start", "seed", "real_time_factor", "command_timeout_ms"):
        value = getattr(SimOptions(), name)
        assert said[name] == (value if isinstance(value, str) else f"{value:g}")
    assert (said["state_hz"], SimOptions().state_hz, SimOptions().physics_hz) == ("500, 1000", 500, 1000)


def test_the_page_lists_the_editable_and_the_fixed_keys():
    (row,) = (line for line in PAGE.splitlines() if line.startswith("| `exported` |"))
    assert all(name.split("_")[0] in row for name in TUNABLE)
    (row,) = (line for line in PAGE.splitlines() if line.startswith("| `trained_sha256` |"))
    words = {"hz": "rate", "default_pose": "default pose"}
    assert all(words.get(name, name) in row for name in FIXED)


def test_the_page_has_the_largest_round_trip():
    assert f"a round trip of more than {1e3 * MAX_ROUND_TRIP_S:g} ms is not used" in " ".join(PAGE.split())


@pytest.mark.parametrize("page", ["docs/a1.md", "docs/deployment.md"])
@pytest.mark.parametrize("line", INSTALL)
def test_the_installation_on_a_robots_computer_is_that_of_make_robot(page, line):
    assert f"\n{line} " in (ROOT / page).read_text(encoding="utf-8")
    tried = (ROOT / "Makefile").read_text().replace("--quiet ", "").replace("--no-build-isolation ", "")
    tried = tried.replace(".venv/bin/python -m pip wheel", "pip wheel").replace("--force-reinstall ", "")
    assert line in tried.replace(".venv-robot/bin/python $(INSTALL)", "pip install")


def test_no_page_installs_the_package_from_an_index():
    """The package is on no index, and another one could take its name there."""
    places = [*ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("benchmarks/*.py")]
    for file in (ROOT / "README.md", ROOT / "requirements-robot.txt", *places):
        assert not re.search(r"pip install[^\n]*body[-_]transformer(?!-)", file.read_text(encoding="utf-8")), file
