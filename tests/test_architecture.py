"""docs/architecture.md describes the tree as it is, and a name means one thing in it."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "body_transformer"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"(?:src/body_transformer|tests)/[\w./-]+", PAGE)))
FLOW, TREE = PAGE.split("## The tree")[0], PAGE.split("## The tree")[1].split("## Five questions")[0]
PARTS = "|".join(sorted(entry.name for entry in SOURCE.iterdir() if entry.is_dir()))
IN_FLOW = sorted(set(re.findall(rf"\b(?:{PARTS})/[\w/]*(?:\.py)?", FLOW)))


def test_every_named_path_exists():
    assert [path for path in PATHS if not (ROOT / path).exists()] == []
    assert [path for path in IN_FLOW if not (SOURCE / path).exists()] == []
    assert len(PATHS) > 10
    assert len(IN_FLOW) > 20


@pytest.mark.parametrize("text", [TREE, README.split("## Where things are")[1]], ids=["architecture", "README"])
def test_the_tree_names_every_folder_and_module(text):
    named = set(re.findall(r"^      ([\w.]+?)/? ", text, re.MULTILINE))
    named |= {name for name in re.findall(r"\b\w+\.py\b", text) if (SOURCE / name).exists()}
    modules = {file.name for file in SOURCE.glob("*.py")} - {"__init__.py"}
    folders = {entry.name for entry in SOURCE.iterdir() if entry.is_dir() and not entry.name.startswith("__")}
    assert modules | folders <= named
    assert {name for name in named if not (SOURCE / name).exists()} == set()


def test_a_class_name_exists_once():
    places = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
