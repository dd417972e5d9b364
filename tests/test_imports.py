"""`import body_transformer` is quick, parts of the package use only parts above them, and the runtime needs little."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import version
from pathlib import Path

import pytest

import body_transformer

SOURCE = Path(body_transformer.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}
HEAVY = {"torch", "mujoco", "matplotlib", "jinja2", "imageio", "numpy", "scipy", "safetensors", "yaml", "tyro", "rich"}

LEAVES = {"__version__", "array_files", "console", "documents", "errors", "files", "schema", "size_limits", "text"}
"""Top-level modules that every part may use."""
SECTIONS = {"deploy.config", "deploy.control", "imitation.config", "rl.config"}
"""Sections of an experiment. They have their own rules, because the rest of their folders may import `experiment`."""
LEARNING = {
    "body",
    "model",
    "policy_folder",
    "robots",
    "experiment",
    "run",
    "metrics",
    "checkpoint",
    "training",
    "video",
}
"""Parts that both ways of training use."""
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "text": set(),
    "console": {"text"},
    "schema": {"errors"},
    "size_limits": set(),
    "array_files": {"size_limits"},
    "documents": {"errors", "schema", "size_limits"},
    "robots": set(),
    "pretrained": set(),
    "video": set(),
    "pictures": set(),
    "ops": set(),
    "body": {"pictures"},
    "policy_folder": {"pretrained"},
    "run": {"policy_folder", "pretrained"},
    "metrics": {"run"},
    "training": {"run"},
    "model": {"body", "ops", "policy_folder"},
    "checkpoint": {"model", "policy_folder"},
    "deploy.control": set(),
    "deploy.robot_model": {"body.description"},
    "deploy.config": {"body", "deploy.control", "deploy.robot_model"},
    "imitation.config": set(),
    "rl.config": set(),
    "experiment": {"body", "model", "policy_folder", "robots", *SECTIONS},
    "authors": {"body", "experiment", "model"},
    "imitation": {"imitation.config", *LEARNING},
    "rl": {"imitation", *SECTIONS, *LEARNING},
    "deploy": {
        "body.layout",
        "deploy.control",
        "policy_folder",
    },  # the runtime, and modules without an own line
    "deploy.robots.sim_model": {"deploy", "deploy.control", "deploy.robot_model", "policy_folder", "robots"}
    | {"body.description", "body.outside"},
    "deploy.robots.sim_body": {"deploy", "deploy.robots.sim_model"},
    "deploy.robots.sim_process": {"deploy", "deploy.robots.sim_body", "deploy.robots.sim_model"},
    "deploy.rewrite": {"model", "ops"},
    "deploy.onnx_file": {"deploy", "deploy.rewrite", "model"},
    "deploy.export": {"body", "deploy", "deploy.onnx_file", "experiment", "model", "policy_folder", "run", *SECTIONS},
    "report": {"body", "deploy", "pictures", "policy_folder", "rl.config", "run"},
    "bench": {
        "body",
        "deploy",
        "deploy.onnx_file",
        "experiment",
        "model",
        "ops",
        "pictures",
        "report.text",
        "rl",
        "rl.config",
        "robots",
        "training",
    },
    "reproduce": {"report", "run", "training"},
    "cli": {"bench", "deploy", "deploy.export", "imitation", "pictures", "pretrained", "report", "reproduce", "rl"}
    | SECTIONS
    | LEARNING,
    "__init__": {"authors", "body", "model", "robots"},
}
"""Every part of the package, and the parts that it may use besides itself and LEAVES. Each part uses only parts above
it, so parts have no import cycle. A folder stands for all of its modules that have no line of their own."""
ON_THE_ROBOT = {"numpy", "onnxruntime"}
PACKAGES: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "text": set(),
    "console": {"rich"},
    "schema": set(),
    "size_limits": set(),
    "array_files": {"numpy"},
    "documents": {"yaml"},
    "pretrained": set(),
    "policy_folder": set(),
    "deploy.control": set(),
    "deploy.robot_model": {"mujoco", "numpy"},
    "deploy.config": {"mujoco"},  # for types
    "deploy": {*ON_THE_ROBOT, "robot_interface"},  # Unitree's module, on the computer of an A1
    "deploy.robots.sim_model": {"mujoco", "numpy"},
    "deploy.robots.sim_body": {"mujoco", "numpy"},
    "deploy.robots.sim_process": {"numpy"},
    "deploy.rewrite": {"torch"},
    "deploy.onnx_file": {"torch"},
    "deploy.export": {"numpy", "torch"},
    "__init__": set(),
}
"""Parts that may import few packages, and these packages."""


def in_fresh_interpreter(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.strip()


# -- import body_transformer -------------------------------------------------------------------------------------------


def test_importing_the_package_brings_no_heavy_package():
    new = in_fresh_interpreter(
        "import sys; before = set(sys.modules); import body_transformer; print(*(set(sys.modules) - before))"
    )
    assert "body_transformer" in new.split()
    assert HEAVY.isdisjoint(name.split(".")[0] for name in new.split())


@pytest.mark.alone
def test_importing_the_package_is_quick():
    code = "import time; t = time.perf_counter(); import body_transformer; print(time.perf_counter() - t)"
    assert min(float(in_fresh_interpreter(code)) for _ in range(5)) < 0.3


def test_a_body_graph_needs_no_torch_no_mujoco_and_no_matplotlib():
    code = "import sys; from body_transformer import BodyGraph, Layout, Term; print(*sys.modules)"
    loaded = {name.split(".")[0] for name in in_fresh_interpreter(code).split()}
    assert loaded.isdisjoint({"torch", "mujoco", "matplotlib"})


def test_the_public_names_are_these_and_can_be_imported():
    assert body_transformer.__all__ == ["BodyGraph", "Critic", "Layout", "Policy", "PolicyConfig", "Term"]
    for name in body_transformer.__all__:
        assert getattr(body_transformer, name).__name__ == name
        assert name in dir(body_transformer)
    used = "import body_transformer; body_transformer.authors; body_transformer.robots"
    assert "Policy" in in_fresh_interpreter(f"from body_transformer import *; {used}; print(*dir())")


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'body_transformer' has no attribute 'Polcy'"):
        body_transformer.Polcy  # noqa: B018
    with pytest.raises(ImportError):
        from body_transformer import Polcy  # noqa: F401


def test_the_version_is_the_installed_one():
    assert body_transformer.__version__ == version("body-transformer")


# -- which part imports which part and which package -------------------------------------------------------------------


def module_name(file: Path) -> str:
    """Return rl.a1.task for rl/a1/task.py, and rl.a1 for its __init__.py."""
    name = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
    return name.removesuffix(".__init__")


def within(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def part_of(name: str) -> str:
    """Return the most specific part that a dotted name belongs to; a module without a rule is a part of its own."""
    return max((part for part in MAY_IMPORT if within(name, part)), key=len, default=name.partition(".")[0])


def imports(tree: ast.AST, file: Path) -> tuple[set[str], set[str]]:
    """Return the imports, lazy and type-checking ones included: dotted names inside this package, and other packages.

    `import_module("name")` counts, too.
    """
    package = ("body_transformer", *file.relative_to(SOURCE).parent.parts)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            found |= {str(name.value) for name in node.args if isinstance(name, ast.Constant)}
    own = {name.removeprefix("body_transformer.") for name in found if within(name, "body_transformer")}
    others = {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"body_transformer", ""}
    return own - {"body_transformer"}, others


def offences(tree: ast.AST, file: Path) -> list[str]:
    """Return the imports that the file's part may not have."""
    part, (own, packages) = part_of(module_name(file)), imports(tree, file)
    allowed = MAY_IMPORT.get(part, set()) | LEAVES | {part}
    modules = allowed - MAY_IMPORT.keys()  # single modules of a part
    wrong = {name for name in own if part_of(name) not in allowed and not any(within(name, one) for one in modules)}
    return sorted(wrong | (packages - PACKAGES.get(part, packages)))


def test_every_file_imports_only_what_its_part_may_use():
    assert {module_name(file): found for file, tree in TREES.items() if (found := offences(tree, file))} == {}


def test_every_part_has_a_rule_and_every_rule_a_part():
    parts = {part_of(module_name(file)) for file in FILES} - {"experiments"}
    assert parts == MAY_IMPORT.keys()
    assert PACKAGES.keys() <= parts


def test_every_part_uses_only_parts_above_it():
    above = set(LEAVES)
    for part, allowed in MAY_IMPORT.items():
        assert {part_of(name) for name in allowed} <= above, part
        above.add(part)


@pytest.mark.parametrize(
    ("file", "line", "offence"),
    [
        ("body/graph.py", "from ..model.policy import Policy", "model.policy.Policy"),
        ("body/graph.py", "from .. import robots", "robots"),
        ("body/graph.py", "import body_transformer.experiment", "experiment"),
        ("body/graph.py", "def f():\n    from ..ops import body_attention", "ops.body_attention"),
        ("ops/body_attention/reference.py", "from ...body.graph import BodyGraph", "body.graph.BodyGraph"),
        ("model/policy.py", "from body_transformer.robots import path", "robots.path"),
        ("rl/config.py", "from .ppo import PPO", "rl.ppo.PPO"),
        ("schema.py", "from .run import Run", "run.Run"),
        ("new.py", "from .body.graph import BodyGraph", "body.graph.BodyGraph"),
        ("deploy/runtime.py", "import torch", "torch"),
        ("deploy/runtime.py", "def f():\n    import mujoco.viewer", "mujoco"),
        ("deploy/policy.py", "from torch import nn", "torch"),
        ("deploy/policy.py", "importlib.import_module('torch')", "torch"),
        ("deploy/contract.py", "from ..body.description import read", "body.description.read"),
        ("deploy/contract.py", "from .export import export", "deploy.export.export"),
        ("deploy/robots/sim.py", "from . import sim_process", "deploy.robots.sim_process"),
        ("deploy/export.py", "import mujoco", "mujoco"),
    ],
)
def test_a_forbidden_import_is_found(file, line, offence):
    assert offences(ast.parse(line), SOURCE / file) == [offence]


# -- import cycles -----------------------------------------------------------------------------------------------------


def check_acyclic(trees: dict[Path, ast.Module]) -> None:
    """Raise CycleError if modules import each other, directly or through others.

    The package itself is left out: it imports its public names only when they are used.
    """
    modules = {module_name(file): file for file in trees}
    graph = {name: {nearest(one, modules) for one in imports(trees[file], file)[0]} for name, file in modules.items()}
    TopologicalSorter({name: used - {name, "", "__init__"} for name, used in graph.items()}).prepare()


def nearest(name: str, modules: dict[str, Path]) -> str:
    """Return the module of a dotted name, which may end with names inside the module."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def test_modules_have_no_import_cycle():
    check_acyclic(TREES)


def test_a_cycle_of_lazy_and_type_checking_imports_is_found():
    texts = {"a": "def f():\n    from .b import g", "b": "if TYPE_CHECKING:\n    from .c import C", "c": "x = 1"}
    check_acyclic({SOURCE / f"{name}.py": ast.parse(text) for name, text in texts.items()})
    texts["c"] = "from . import a"
    with pytest.raises(CycleError):
        check_acyclic({SOURCE / f"{name}.py": ast.parse(text) for name, text in texts.items()})


# -- what a robot's computer needs -------------------------------------------------------------------------------------

MISSING = sorted({*HEAVY, "onnx", "onnxscript", "mjlab", "rsl_rl", "warp", "PIL", "accelerate"} - ON_THE_ROBOT)


def test_the_runtime_can_be_imported_where_neither_torch_nor_mujoco_is_installed():
    runtime = [name for name in map(module_name, FILES) if part_of(name) == "deploy"]
    modules = [f"body_transformer.{name}" for name in (*runtime, "cli.main", "cli.deploy")]
    assert {"body_transformer.deploy.runtime", "body_transformer.deploy.robots.sim"} < set(modules)
    loaded = in_fresh_interpreter(
        f"""
import sys
from importlib import import_module
for name in {MISSING}:
    sys.modules[name] = None  # its import is an ImportError
for name in {modules}:
    import_module(name)
print(*(name for name, module in sys.modules.items() if module is not None))
"""
    )
    assert {"torch", "mujoco", *MISSING}.isdisjoint(name.split(".")[0] for name in loaded.split())
    assert set(modules) <= set(loaded.split())


def test_no_array_is_unpickled():
    """NumPy unpickles only where it is asked to; pyproject.toml bans what unpickles or executes data otherwise."""
    assert [module_name(file) for file in FILES if "allow_pickle=True" in file.read_text(encoding="utf-8")] == []
