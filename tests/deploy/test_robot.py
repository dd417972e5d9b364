"""The interface of a robot."""

import math

import numpy as np
import pytest

from body_transformer.deploy.robot import Robot, all_true, any_true
from body_transformer.deploy.robots import DRIVERS, driver


@pytest.mark.parametrize("mask", [[False] * 12, [True] * 12, [False] * 11 + [True], [True] * 11 + [False], []])
def test_any_true_and_all_true_agree_with_numpy(mask):
    given = np.array(mask, bool)
    assert any_true(given) == given.any()
    assert all_true(given) == given.all()


def test_a_comparison_with_nan_is_false():
    assert not any_true(np.array([np.nan]) <= 1.0)
    assert not all_true(np.array([0.0, np.nan]) <= 1.0)


class Dog(Robot):
    """A driver with only the required members."""

    joints = ("hip",)

    def read(self):
        return None

    def send(self, command):
        return command

    def __exit__(self, *exc): ...


def test_a_driver_needs_four_members_and_the_rest_has_defaults():
    with Dog.create({}, expected=("hip",)) as dog:
        dog.begin_rollout()
        dog.end_rollout()
        assert (dog.rates_hz, dog.tripped, dog.shares_computer) == ((0.0, math.inf), "", False)
        assert math.isnan(dog.round_trip_s)
        assert dog.summary() is None
    with pytest.raises(ValueError, match="this robot has no options; got speed"):
        Dog.create({"speed": 3})


@pytest.mark.parametrize("member", ["read", "send", "__exit__"])
def test_a_driver_without_a_required_member_cannot_be_made(member):
    members = {name: getattr(Dog, name) for name in ("read", "send", "__exit__") if name != member}
    with pytest.raises(TypeError, match=member):
        type("Incomplete", (Robot,), members)()


def test_a_driver_is_found_by_name_or_by_module_and_class(tmp_path, monkeypatch):
    for name in DRIVERS:
        assert issubclass(driver(name), Robot)
    (tmp_path / "my_dog.py").write_text(
        "from body_transformer.deploy.robot import Robot\n\n\nclass Dog(Robot):\n    read = send = __exit__ = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert driver("my_dog:Dog").__name__ == "Dog"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sin", "unknown robot 'sin'; did you mean 'sim'. have: 'sim', 'a1', or MODULE:CLASS"),
        ("my_cat:Cat", "the driver 'my_cat:Cat' cannot be imported: No module named 'my_cat'"),
        ("pathlib:Cat", "the driver 'pathlib:Cat' cannot be imported: module 'pathlib' has no attribute 'Cat'"),
        (
            "pathlib:Path",
            "'pathlib:Path' is not a driver: it must be a subclass of body_transformer.deploy.robot.Robot",
        ),
    ],
)
def test_a_name_that_is_not_a_driver_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        driver(name)
