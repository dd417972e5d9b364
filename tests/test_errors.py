"""The command that installs an extra is the one that works for the way in which the package was installed."""

import json
from importlib.metadata import PackageNotFoundError

import pytest

from body_transformer import errors


class Installed:
    """A distribution with this direct_url.json."""

    def __init__(self, origin: dict | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


EDITABLE = {"url": "file:///home/user/my%20clone", "dir_info": {"editable": True}}
WHEEL = {"url": "file:///tmp/body_transformer-1.0-py3-none-any.whl", "archive_info": {}}
FOLDER = {"url": "file:///home/user/clone", "dir_info": {}}


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'body-transformer[rl]'"),
        (WHEEL, "pip install 'body-transformer[rl]'"),
        (FOLDER, "pip install 'body-transformer[rl]'"),
        (EDITABLE, "pip install -c constraints.txt -e '.[rl]' in /home/user/my clone"),
    ],
    ids=["from an index", "from a wheel", "from a folder, copied", "from a clone, editable"],
)
def test_the_command_fits_the_installation(monkeypatch, origin, command):
    monkeypatch.setattr(errors, "distribution", lambda name: Installed(origin))
    assert errors.install("rl") == command


def test_without_an_extra_the_dependencies_are_installed(monkeypatch):
    monkeypatch.setattr(errors, "distribution", lambda name: Installed(WHEEL))
    assert errors.install() == "pip install body-transformer"


def test_a_source_tree_that_is_not_installed_asks_for_a_clone(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(errors, "distribution", missing)
    assert errors.install("rl") == "pip install -c constraints.txt -e '.[rl]' in a clone"


def test_a_missing_extra_is_an_error_with_that_command():
    with pytest.raises(ValueError, match="No module named 'no_such_module'") as refused:
        errors.import_extra("no_such_module", "deploy")
    assert str(refused.value).endswith(errors.install("deploy"))
