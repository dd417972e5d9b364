import ast
import subprocess
import sys
from pathlib import Path

import pytest

import body_transformer

SOURCE = Path(body_transformer.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}
HEAVY = {"torch", "mujoco", "matplotlib", "jinja2", "imageio", "numpy", "scipy", "safetensors", "yaml", "tyro", "rich"}

LEAVES = {"__version__", "errors", "files", "schema"}
"""Modules at the top that every part may use."""
SECTIONS = {"deploy.config", "deploy.control", "imitation.config", "rl.config"}
"""Sections of an experiment; they are apart from the rest of their folders, which may import `experiment`."""
LEARNING = {
    "body",
    "checkpoint",
    "experiment",
    "metrics",
    "model",
    "policy_folder",
    "robots",
    "run",
    "training",
    "video",
}
"""Parts that both ways of training use."""
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "schema": {"errors"},
    "robots": set(),
    "pretrained": set(),
    "video": set(),
    "ops": set(),
    "body": set(),
    "policy_folder": {"pretrained"},
    "run": {"policy_folder", "pretrained"},
    "metrics": {"run"},
    "training": {"run"},
    "model": {"body", "ops", "policy_folder"},
    "checkpoint": {"model", "policy_folder"},
    "deploy.control": {"body"},
    "deploy.config": {"body", "deploy.control"},
    "imitation.config": set(),
    "rl.config": set(),
    "experiment": {"body", "model", "robots", *SECTIONS},
    "authors": {"body", "experiment", "model"},
    "imitation": {"imitation.config", *LEARNING},
    "rl": {"rl.config", *LEARNING},
    "deploy": {"body", "experiment", "model", "ops", "policy_folder", "rl.config", "robots", "run", *SECTIONS},
    "bench": {"body", "deploy", "experiment", "model", "ops", "rl", "robots", "training"},
    "report": {"body", "deploy", "policy_folder", "rl.config", "run"},
    "reproduce": {"report", "run", "training"},
    "cli": {"bench", "deploy", "imitation", "pretrained", "report", "reproduce", "rl", *LEARNING},
    "__init__": {"authors", "body", "model", "robots"},
}
"""Every part of the package, and the parts that it may use beside itself and LEAVES. Each part uses only parts above
it, so parts have no import cycle."""


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


@pytest.mark.parametrize("name", body_transformer.__all__)
def test_every_public_name_can_be_imported(name):
    value = getattr(body_transformer, name)
    assert value.__name__ == name
    assert getattr(body_transformer, name) is value
    assert name in dir(body_transformer)


def test_the_public_names_are_these():
    assert body_transformer.__all__ == ["BodyGraph", "Critic", "Layout", "Policy", "PolicyConfig", "Term"]


def test_all_names_and_the_submodules_that_the_readme_uses_can_be_imported():
    used = "import body_transformer; body_transformer.authors; body_transformer.robots"
    assert "Policy" in in_fresh_interpreter(f"from body_transformer import *; {used}; print(*dir())")


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'body_transformer' has no attribute 'Polcy'"):
        body_transformer.Polcy  # noqa: B018
    assert not hasattr(body_transformer, "__wrapped__")
    with pytest.raises(ImportError):
        from body_transformer import Polcy  # noqa: F401


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert body_transformer.__version__ == version("body-transformer")


# -- which part imports which ------------------------------------------------------------------------------------------


def own_imports(tree: ast.AST, package: tuple[str, ...]) -> set[str]:
    """Return the imports of this package, lazy and type-checking ones included, as dotted names inside it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("body_transformer.") for name in found if name.startswith("body_transformer.")}


def package_of(file: Path) -> tuple[str, ...]:
    return ("body_transformer", *file.relative_to(SOURCE).parent.parts)


def module_name(file: Path) -> str:
    """Return rl.a1.task for rl/a1/task.py, and rl.a1 for its __init__.py."""
    name = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
    return name.removesuffix(".__init__")


def part_of(name: str) -> str:
    """Return the most specific part that a dotted name belongs to; a top-level module that is none is its own."""
    parts = [part for part in MAY_IMPORT if within(name, part)]
    return max(parts, key=len, default=name.partition(".")[0])


def offences(tree: ast.AST, file: Path) -> list[str]:
    """Return the imports that the file's part may not use."""
    part = part_of(module_name(file))
    allowed = MAY_IMPORT.get(part, set()) | LEAVES | {part}
    return [
        name
        for name in sorted(own_imports(tree, package_of(file)))
        if part_of(name) not in allowed and not any(within(part_of(name), other) for other in allowed - SECTIONS)
    ]


def within(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def test_every_file_imports_only_parts_that_its_own_part_may_use():
    assert {module_name(file): found for file, tree in TREES.items() if (found := offences(tree, file))} == {}


def test_every_part_has_a_rule():
    parts = {module_name(file).partition(".")[0] for file in FILES} - {"experiments"}
    assert parts == {part for part in MAY_IMPORT if "." not in part}


def test_every_part_uses_only_parts_above_it():
    above: set[str] = set()
    for part, allowed in MAY_IMPORT.items():
        assert allowed <= above, part
        above.add(part)


def test_modules_have_no_import_cycle():
    assert import_cycles(TREES) == []


def import_cycles(trees: dict[Path, ast.Module]) -> list[set[str]]:
    """Return each set of modules that import each other, directly or through others.

    The package itself is left out: it imports its public names only when they are used.
    """
    graph: dict[str, set[str]] = {}
    modules = {module_name(file): file for file in trees}
    for name, file in modules.items():
        imports = own_imports(trees[file], package_of(file))
        graph[name] = {found for found in (nearest(one, modules) for one in imports) if found} - {name, "__init__"}
    reachable = {name: reached(graph, name) for name in graph}
    cycles = [frozenset(other for other in reachable[name] if name in reachable[other]) for name in graph]
    return [set(cycle) for cycle in dict.fromkeys(cycles) if cycle]


def nearest(name: str, modules: dict[str, Path]) -> str:
    """Return the module of a dotted name, which may end with names inside the module."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return the modules that `start` imports, directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def test_the_check_finds_cycles_of_lazy_and_type_checking_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    texts = {
        "a": "def f():\n    from .b import g",
        "b": "if TYPE_CHECKING:\n    from .c import C",
        "c": "from . import a",
        "d": "from .a import f",
    }
    assert import_cycles({tmp_path / f"{name}.py": ast.parse(text) for name, text in texts.items()}) == [{*"abc"}]


@pytest.mark.parametrize(
    ("file", "line", "offence"),
    [
        ("body/graph.py", "from ..model.policy import Policy", "model.policy.Policy"),
        ("body/graph.py", "from .. import robots", "robots"),
        ("body/graph.py", "import body_transformer.experiment", "experiment"),
        ("body/graph.py", "def f():\n    from ..ops import body_attention", "ops.body_attention"),
        ("ops/body_attention/reference.py", "from ...body.graph import BodyGraph", "body.graph.BodyGraph"),
        ("model/policy.py", "from ..experiment import load_experiment", "experiment.load_experiment"),
        ("model/policy.py", "from body_transformer.robots import path", "robots.path"),
        ("robots/__init__.py", "from ..body.graph import BodyGraph", "body.graph.BodyGraph"),
        ("experiment.py", "from .cli import main", "cli.main"),
        ("model/policy.py", "from ..cli.output import console", "cli.output.console"),
        ("rl/config.py", "from ..experiment import Experiment", "experiment.Experiment"),
        ("rl/config.py", "from .ppo import PPO", "rl.ppo.PPO"),
        ("experiment.py", "from .rl.ppo import PPO", "rl.ppo.PPO"),
        ("deploy/export.py", "from ..rl.ppo import PPO", "rl.ppo.PPO"),
        ("report/load.py", "from ..rl.ppo import PPO", "rl.ppo.PPO"),
        ("schema.py", "from .run import Run", "run.Run"),
        ("new.py", "from .body.graph import BodyGraph", "body.graph.BodyGraph"),
    ],
)
def test_the_rule_would_notice(file, line, offence):
    assert offences(ast.parse(line), SOURCE / file) == [offence]


# -- what a robot's computer needs -------------------------------------------------------------------------------------

DEPLOY = SOURCE / "deploy"
EXPORT = {f"{part}.py": {"torch"} for part in ("export", "graph", "rewrite", "onnx_file")} | {"config.py": {"mujoco"}}
"""Files of `bot export`, which runs on the training machine -> which of torch and MuJoCo each may import."""
SIMULATED_ROBOT = {"robots/sim_process.py": set(), "robots/sim_body.py": {"mujoco"}}
"""The same for the simulated robot's process."""
APART = EXPORT | SIMULATED_ROBOT
ON_THE_ROBOT = {"numpy", "onnxruntime"}
OF_OURS = ("files", "body.layout", "errors", "policy_folder", "schema", "deploy")
"""Packages, and parts of this one, that the rest of deploy/ may use."""
MISSING = sorted({*HEAVY, "onnx", "onnxscript", "mjlab", "rsl_rl", "warp", "PIL", "accelerate"} - ON_THE_ROBOT)


def deployed(file: Path) -> str:
    return file.relative_to(DEPLOY).as_posix()


def module(name: str) -> str:
    """robots/sim.py -> deploy.robots.sim"""
    return f"deploy.{name.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__")


DEPLOY_FILES = [file for file in FILES if file.is_relative_to(DEPLOY)]
RUNTIME_FILES = [file for file in DEPLOY_FILES if deployed(file) not in APART]


def packages(tree: ast.AST) -> set[str]:
    """Return the packages that a module imports, lazily or not, by name or by `import_module("name")`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            found |= {str(ast.literal_eval(name)).split(".")[0] for name in node.args if isinstance(name, ast.Constant)}
    return found - sys.stdlib_module_names - {"body_transformer", ""}


def burdens(tree: ast.AST, file: Path) -> list[str]:
    """Return the imports of a file of deploy/ that it may not have."""
    name, own = deployed(file), own_imports(tree, package_of(file))
    if name in APART:
        others = EXPORT if name in SIMULATED_ROBOT else SIMULATED_ROBOT
        wrong = ({"torch", "mujoco"} & packages(tree)) - APART[name]
    else:
        others = APART
        wrong = packages(tree) - ON_THE_ROBOT - {"robot_interface"}  # Unitree's, where there is an A1
        wrong |= {name for name in own if not any(within(name, part) for part in OF_OURS)}
    return sorted(wrong | {name for name in own if any(within(name, module(other)) for other in others)})


def test_only_the_export_imports_torch_and_only_the_simulated_robot_imports_mujoco():
    assert {deployed(file): found for file in DEPLOY_FILES if (found := burdens(TREES[file], file))} == {}


def test_the_files_apart_are_there():
    assert set(APART) <= {deployed(file) for file in DEPLOY_FILES}


@pytest.mark.parametrize(
    ("file", "line", "burden"),
    [
        ("runtime.py", "import torch", "torch"),
        ("runtime.py", "def f():\n    import mujoco.viewer", "mujoco"),
        ("policy.py", "from torch import nn", "torch"),
        ("policy.py", "import_module('torch')", "torch"),
        ("link.py", "importlib.import_module('mujoco')", "mujoco"),
        ("safety.py", "import yaml", "yaml"),
        ("contract.py", "from ..experiment import Experiment", "experiment.Experiment"),
        ("contract.py", "from .export import export", "deploy.export.export"),
        ("robots/sim.py", "from .sim_body import SimBody", "deploy.robots.sim_body.SimBody"),
        ("robots/sim.py", "from . import sim_process", "deploy.robots.sim_process"),
        ("robots/sim_process.py", "import torch", "torch"),
        ("robots/sim_body.py", "import torch", "torch"),
        ("robots/sim_body.py", "from ..export import export", "deploy.export.export"),
        ("export.py", "import mujoco", "mujoco"),
    ],
)
def test_the_rule_would_notice_a_burden(file, line, burden):
    assert burdens(ast.parse(line), DEPLOY / file) == [burden]


def test_the_runtime_can_be_imported_where_neither_torch_nor_mujoco_is_installed():
    modules = [f"body_transformer.{module(deployed(file))}" for file in RUNTIME_FILES]
    modules += ["body_transformer.cli.main", "body_transformer.cli.deploy"]
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


# -- forbidden everywhere ----------------------------------------------------------------------------------------------

DANGEROUS_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
DANGEROUS_CALLS = {"eval", "exec", "torch.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "numpy.load"}


def dangers(tree: ast.AST) -> list[str]:
    """Return the ways in which a file could execute data."""
    found = []
    safe = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _refuses_pickle(node)}
    for node in ast.walk(tree):
        if id(node) in safe:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Name | ast.Attribute):
            names = [ast.unparse(node).replace("np.", "numpy.")]
        found += [name for name in names if name in DANGEROUS_CALLS or name.split(".")[0] in DANGEROUS_MODULES]
    return found


def _refuses_pickle(call: ast.Call) -> bool:
    """Whether a call is `np.load(…, allow_pickle=False)`."""
    return any(word.arg == "allow_pickle" and ast.unparse(word.value) == "False" for word in call.keywords)


def test_no_file_executes_the_data_that_it_reads():
    assert {module_name(file): found for file, tree in TREES.items() if (found := dangers(tree))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "torch.load(path)",
        "from torch import load",
        "load = torch.load",
        "eval(text)",
        "exec(text)",
        "yaml.load(text)",
        "from yaml import load",
        "np.load(file, allow_pickle=True)",
    ],
)
def test_the_check_would_notice(line):
    assert dangers(ast.parse(line))


@pytest.mark.parametrize("line", ["policy.eval()", "yaml.safe_load(text)", "json.loads(text)", "self.exec()"])
def test_the_check_leaves_harmless_lines_alone(line):
    assert dangers(ast.parse(line)) == []
