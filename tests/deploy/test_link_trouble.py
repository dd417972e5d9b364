"""What `bot deploy` and `bot report` say of a link that was not as it should be."""

import re

import pytest

from body_transformer.cli.deploy_result import tell
from body_transformer.deploy.link_trouble import link_trouble
from body_transformer.deploy.robots.sim_options import SimReport
from body_transformer.report.page import write_report

from ..report.deployment_folders import deploy
from .virtual_robot import virtual_run

WELL = SimReport(False, -1.0, 3.0, 1.2, -0.1, 0.4, 0.1, 20.0, commands=300, timeouts=0, refused=0, lag_s=0.0).to_dict()
ILL = WELL | {"timeouts": 2, "refused": 31, "lag_s": 0.214}
WORDS = [
    "the robot damped by itself 2 times, as no command came",
    "it refused 31 datagrams",
    "its computer was 0.21 s too slow for real time",
]


@pytest.mark.parametrize("report", [WELL, {}, {"timeouts": "many", "refused": None, "lag_s": float("nan")}])
def test_nothing_is_said_of_a_link_that_was_well_or_not_reported_on(report):
    assert link_trouble(report) == []


def test_what_is_not_0_is_told_in_words():
    assert link_trouble(ILL) == WORDS


def test_it_is_printed_after_the_run(capsys):
    result = virtual_run(seconds=0.1)[0].run()
    tell("a1-walk", "sim", result, None, WELL)
    assert "link:" not in capsys.readouterr().out
    tell("a1-walk", "sim", result, None, ILL)
    assert f"link: {', '.join(WORDS)}" in capsys.readouterr().out


def test_it_is_on_the_page(tmp_path):
    for name, report in (("well", WELL), ("ill", ILL)):
        deploy(tmp_path / name, more={"report": report}, seconds=0.1)
        page = write_report(tmp_path / f"{name}.html", [str(tmp_path / name)], None).path.read_text()
        found = [words in re.sub(r"\s+", " ", page) for words in WORDS]
        assert found == [name == "ill"] * 3
