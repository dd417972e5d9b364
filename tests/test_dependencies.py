"""The licence tables, the bill of materials and the lock file name exactly the dependencies of the package."""

import hashlib
import importlib.util
import json
import re
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")

_spec = importlib.util.spec_from_file_location("dependencies_tool", ROOT / "tools" / "dependencies.py")
assert _spec is not None
assert _spec.loader is not None
tool = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = tool  # dataclasses look their module up
_spec.loader.exec_module(tool)

LISTED = {one.name: one for one in tool.dependencies()}
HERE = {name for name in LISTED if not tool.is_elsewhere(name)}
PINS = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
PINS = {canonicalize_name(name): version for name, version in PINS.items()}
COPYLEFT_OR_PROPRIETARY = re.compile(r"GPL|MPL|LicenseRef")
IDS = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "GPL-3.0-only", "ISC", "LGPL-2.1"),
    *("LLVM-exception", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib", tool.NVIDIA),
}


def rows(text: str) -> list[list[str]]:
    """Return the cells of the rows of Markdown tables, without their heads."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if cells[0] != "package"]


def test_the_closure_is_what_the_constraints_pin():
    assert set(PINS) == HERE


def test_the_page_has_the_tables_of_this_environment():
    everywhere = PAGE.split("<!-- everywhere")[1].split("<!-- end of everywhere")[0]
    written, made = rows(everywhere), rows(tool.tables()["everywhere"])
    assert [row[:3] for row in written] == [row[:3] for row in made]
    needed_by = {row[0]: row[3] for row in made}
    differing = {row[0] for row in written if row[3] != needed_by[row[0]]}
    assert differing <= {"triton", "setuptools"}  # PyTorch for CUDA needs Triton itself
    assert [(name, version) for name, version, *_ in written] == sorted(PINS.items())


def test_the_page_names_every_locked_package_of_other_platforms():
    elsewhere = PAGE.split("<!-- elsewhere")[1].split("<!-- end of elsewhere")[0]
    locked = tool.locked()
    assert {row[0]: row[1] for row in rows(elsewhere)} == {name: locked[name] for name in set(locked) - set(PINS)}
    assert {row[2] for row in rows(elsewhere)} <= IDS | {tool.NO_FILES}


@pytest.mark.parametrize("one", LISTED.values(), ids=LISTED)
def test_a_licence_is_an_spdx_expression(one):
    assert one.licence == tool.NO_FILES or set(re.split(" (?:AND|OR|WITH) ", one.licence)) <= IDS


def test_licences_that_are_not_permissive_are_explained():
    section = PAGE.split("## Licences that are not permissive")[1].split("\n## ")[0]
    named = [one.name for one in LISTED.values() if COPYLEFT_OR_PROPRIETARY.search(one.licence)]
    assert {"certifi", "paramiko", "torchrunx", "tqdm"} <= set(named)
    assert [name for name in named if name not in section and not name.startswith("nvidia-")] == []
    assert "FFmpeg" in section


def test_the_ssh_and_tracking_stack_of_the_extra_rl_is_named():
    section = PAGE.split("## Network, SSH and tracking")[1].split("\n## ")[0]
    for name in ("wandb", "torchrunx", "fabric", "paramiko"):
        assert name in section
        assert LISTED[name].parts == ("rl",)


def distribution_with(folder: Path, metadata: str, licence_text: str = "") -> PathDistribution:
    """Write the metadata of a distribution named `made-up`, and return it."""
    info = folder / "made_up-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n{metadata}\n")
    (info / "LICENSE").write_text(licence_text)
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/LICENSE,,\n")
    return PathDistribution(info)


BSD = "Redistributions in binary form must reproduce the above copyright notice."


@pytest.mark.parametrize(
    ("metadata", "text", "licence"),
    [
        ("License-Expression: MIT OR Zlib", "", "MIT OR Zlib"),
        ("License: Apache 2.0", "", "Apache-2.0"),
        ("License: MPL-2.0 AND MIT", "", "MPL-2.0 AND MIT"),
        ("Classifier: License :: OSI Approved :: ISC License (ISCL)", "", "ISC"),
        ("License: BSD", BSD, "BSD-2-Clause"),
        ("License: BSD", f"{BSD} Names may not be used to endorse\n or promote products.", "BSD-3-Clause"),
    ],
)
def test_a_licence_is_read_from_metadata_or_text(tmp_path, metadata, text, licence):
    assert tool.licence(distribution_with(tmp_path, metadata, text)) == licence


@pytest.mark.parametrize("metadata", ["License: as you like", "License: BSD", "Summary: no licence at all"])
def test_an_unknown_licence_is_an_error_that_names_the_package(tmp_path, metadata):
    with pytest.raises(ValueError, match="made-up"):
        tool.licence(distribution_with(tmp_path, metadata))


@pytest.fixture(scope="module")
def bom(tmp_path_factory):
    wheel = tmp_path_factory.mktemp("wheel") / "body_transformer-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"contents of a wheel")
    tool.main(["sbom", str(wheel)])
    return json.loads(wheel.with_suffix(".cdx.json").read_text(encoding="utf-8"))


def test_the_bill_of_materials_has_the_fields_that_cyclonedx_requires(bom):
    assert (bom["bomFormat"], bom["specVersion"], bom["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bom["serialNumber"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", bom["metadata"]["timestamp"])
    nested = [inner for entry in bom["components"] for inner in entry.get("components", [])]
    for entry in [bom["metadata"]["component"], *bom["components"], *nested]:
        assert entry["type"] in {"library", "application"}
        assert entry["name"]
        assert entry["version"]
        assert all(set(choice) == {"expression"} for choice in entry["licenses"])
        assert len(entry["licenses"]) <= 1  # the schema allows one expression, or a list of single licences
    for entry in bom["components"]:
        assert entry["scope"] in {"required", "optional", "excluded"}
        assert re.fullmatch(r"pkg:pypi/[a-z0-9-]+@[\w.%+-]+", entry["purl"])
    references = [entry["bom-ref"] for entry in [bom["metadata"]["component"], *bom["components"], *nested]]
    assert len(references) == len(set(references))
    assert {node["ref"] for node in bom["dependencies"]} <= set(references)
    assert all(set(node["dependsOn"]) <= set(references) for node in bom["dependencies"])


def test_the_bill_of_materials_names_exactly_the_installed_closure(bom):
    assert {entry["name"]: entry["version"] for entry in bom["components"]} == {
        one.name: one.version for one in LISTED.values()
    }
    scopes = {entry["name"]: entry["scope"] for entry in bom["components"]}
    assert [scopes[name] for name in ("torch", "mjlab", "onnx", "pytest")] == [
        *("required", "optional", "optional", "excluded")
    ]


def test_every_component_is_reached_from_the_package(bom):
    graph = {node["ref"]: node["dependsOn"] for node in bom["dependencies"]}
    waiting, reached = [bom["metadata"]["component"]["bom-ref"]], set()
    while waiting:
        reference = waiting.pop()
        if reference not in reached:
            reached.add(reference)
            waiting += graph[reference]
    assert reached == set(graph)


def test_the_bill_of_materials_belongs_to_its_wheel_and_names_ffmpeg(bom):
    component = bom["metadata"]["component"]
    assert component["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"contents of a wheel").hexdigest()}]
    assert (component["name"], component["version"]) == ("body-transformer", "0.1.0")
    film = next(entry for entry in bom["components"] if entry["name"] == "imageio-ffmpeg")
    assert film["components"][0]["licenses"] == [{"expression": "GPL-3.0-or-later"}]


def test_the_lock_file_has_the_versions_of_the_constraints():
    locked = tool.locked()
    assert {name: locked.get(name) for name in PINS} == PINS


def test_every_locked_package_has_hashes_and_the_file_names_no_place():
    entries = re.split(r"\n(?=[A-Za-z0-9])", LOCK)[1:]
    assert len(entries) == len(tool.locked()) > 150
    for entry in entries:
        pin, *others = entry.splitlines()
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ; [^\\]+)? \\", pin)
        hashes = [line for line in others if not line.startswith("    # via ")]
        assert hashes
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes)
    assert not re.search(r"://|file:|--(index|extra-index|find-links|trusted)|(^|\s)/\w", LOCK, re.MULTILINE)


def test_the_page_has_the_command_that_made_the_lock_file():
    command = LOCK.splitlines()[1].removeprefix("#").strip()
    assert command in " ".join(PAGE.replace("\\\n", " ").split())
