"""The log's folder, and the summary that `bot deploy` prints."""

import re
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from body_transformer.cli.deploy_log import log_folder, print_result
from body_transformer.deploy.robots.sim_options import SimReport
from body_transformer.deploy.saved_log import link_trouble
from body_transformer.report.page import write_report

from ..report.deployment_folders import deploy
from .virtual_robot import virtual_run


def test_two_deployments_of_the_same_second_have_separate_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "20260102-030405")
    with log_folder(None, "a1-walk") as one, log_folder(None, "a1-walk") as other:
        assert one == Path("deployments/a1-walk-20260102-030405")
        assert other == Path("deployments/a1-walk-20260102-030405-2")
        (one / "log.json").touch()
    assert [folder.name for folder in Path("deployments").iterdir()] == [one.name]  # the other was left empty


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mjlab:Go1 Walk", "mjlab-Go1-Walk"),
        ("../../elsewhere/evil", "elsewhere-evil"),
        ("/tmp/evil", "tmp-evil"),
        ("\x1b[2J\u202ename\n", "2J-name"),
        ("...", "policy"),
        ("a" * 300, "a" * 80),
        ("läufer", "läufer"),
    ],
)
def test_the_name_of_a_policy_cannot_lead_out_of_the_folder_of_deployments(tmp_path, monkeypatch, name, expected):
    monkeypatch.chdir(tmp_path)
    with log_folder(None, name) as folder:
        assert folder.parent == Path("deployments")
        assert re.fullmatch(rf"{expected}-\d{{8}}-\d{{6}}", folder.name)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["deployments"]


def test_an_existing_folder_is_not_removed(tmp_path):
    with log_folder(tmp_path, "a1-walk") as folder:
        assert folder == tmp_path
    assert tmp_path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_two_running_deployments_cannot_share_a_folder(tmp_path):
    again = pytest.raises(FileExistsError, match="another deployment that still runs")
    with log_folder(tmp_path, "a1-walk"), again, log_folder(tmp_path, "a1-walk"):
        pass
    with log_folder(tmp_path, "a1-walk"):
        pass


def test_a_full_disk_is_found_before_the_run(tmp_path):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"), log_folder(tmp_path / "log", "a1-walk"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


# -- problems of the link, as `bot deploy` and `bot report` show them --------------------------------------------------


WELL = asdict(SimReport(False, -1.0, 3.0, 1.2, -0.1, 0.4, 0.1, 20.0, commands=300, timeouts=0, refused=0, lag_s=0.0))
ILL = WELL | {"timeouts": 2, "refused": 31, "lag_s": 0.214}
WORDS = [
    "the robot damped by itself 2 times, as no command came",
    "it refused 31 datagrams",
    "its computer was 0.21 s too slow for real time",
]


@pytest.mark.parametrize("report", [WELL, {}, {"timeouts": "many", "refused": None, "lag_s": float("nan")}])
def test_a_link_without_problems_or_report_has_no_sentences(report):
    assert link_trouble(report) == []


def test_problems_of_the_link_are_printed_after_the_run(capsys):
    result = virtual_run(seconds=0.1)[0].run()
    print_result("a1-walk", "sim", result, None, WELL)
    assert "link:" not in capsys.readouterr().out
    print_result("a1-walk", "sim", result, None, ILL)
    assert f"link: {', '.join(WORDS)}" in capsys.readouterr().out


def test_problems_of_the_link_are_on_the_page(tmp_path):
    for name, report in (("well", WELL), ("ill", ILL)):
        deploy(tmp_path / name, more={"report": report}, seconds=0.1)
        page = write_report(tmp_path / f"{name}.html", [str(tmp_path / name)], None).path.read_text()
        found = [words in re.sub(r"\s+", " ", page) for words in WORDS]
        assert found == [name == "ill"] * 3
