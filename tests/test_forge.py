"""A forge runs the same checks as `make test`, on the versions of Python that the package names."""

import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from body_transformer import __version__

ROOT = Path(__file__).parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
STEPS = WORKFLOW["jobs"]["test"]["steps"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def rule(name: str) -> tuple[set[str], str]:
    """Return the prerequisites and the commands of a target of the Makefile."""
    found = re.search(rf"^{re.escape(name)}: ?(.*)\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    assert found is not None
    return set(found[1].split()), found[2]


def test_the_workflow_runs_the_check_of_this_repository():
    assert [step["run"] for step in STEPS if "run" in step] == [".ci/run"]
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").splitlines()[-1] == "make test"


def test_the_workflow_runs_on_every_version_that_the_package_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {line.split(" :: ")[-1] for line in project["classifiers"] if "Python :: 3." in line}
    assert set(WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"]) == named


def test_the_workflow_keeps_the_wheel_with_its_bill_of_materials():
    assert "core" in rule("test")[0]
    assert "wheel" in rule("core")[0]
    commands = rule("wheel")[1]
    assert "--wheel-dir build/wheel" in commands
    assert "tools/dependencies.py sbom build/wheel/*.whl" in commands
    assert [step["with"]["path"] for step in STEPS if "upload-artifact" in step.get("uses", "")] == ["build/wheel/"]


def test_the_workflow_may_only_read_and_its_actions_are_pinned():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in WORKFLOW["jobs"]["test"]
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)] == []


def test_make_does_not_need_the_lock_file():
    assert "requirements.lock" not in MAKEFILE


def test_the_changelog_has_this_version():
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert __version__ in headings


@pytest.mark.parametrize("page", ["SECURITY.md", "CONTRIBUTING.md"])
def test_the_readme_names_the_pages_of_the_project(page):
    assert f"]({page})" in (ROOT / "README.md").read_text(encoding="utf-8")
