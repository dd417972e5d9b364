"""The page about deployments: well-formed, self-contained, small, and with the numbers of the logs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from body_transformer.cli.main import main
from body_transformer.pictures import own_style
from body_transformer.report import svg
from body_transformer.report.figures import histogram
from body_transformer.report.page import write_report
from body_transformer.report.text import grouped

from ..deploy.virtual_robot import JOINTS, SinePolicy
from . import chromium
from .deployment_folders import deploy, describe, exported, make, rows_of, ten_minutes, tilting
from .test_page import Reader

pytestmark = pytest.mark.alone


def report(out: Path, *folders: Path, **options: Any) -> Reader:
    return Reader(write_report(out / "page.html", folders, **options).path.read_text())


def charts(page: Reader) -> list[tuple[str, dict[str, Any]]]:
    """Return (title, lines by label) of every chart."""
    found = []
    for one in page.all("svg"):
        if "data-lines" in one:
            lines = json.loads(one["data-lines"] or "")
            found.append(((one["aria-label"] or "").split(",")[0], {line["label"]: line for line in lines}))
    return found


def heights(outline: str) -> list[float]:
    """Return the vertical places of an outline's corners."""
    return [float(number) for number in re.findall(r"[\d.]+ ([\d.]+)", outline)]


def cells(page: Reader) -> list[str]:
    return [data for within, data in page.texts if within == "td"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two deployments by the real command over UDP and in real time, with the filter and without it."""
    root = tmp_path_factory.mktemp("real")
    policy = exported(root)
    for name, flags in (("with", []), ("without", ["--no-filter"])):
        out = root / "deployments" / name
        flags = [*flags, "--stale-ms", "1000", "--faults", "noise=1"]  # a busy computer must not stop the run
        main(["deploy", str(policy), "--seconds", "1", "--out", str(out), "--json", *flags])
    return root / "deployments"


@pytest.fixture(scope="module")
def page(real: Path) -> str:
    return write_report(real.parent / "page.html", [real]).path.read_text()


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_page_is_well_formed_and_shows_every_joint_of_both(page: str) -> None:
    read = Reader(page)
    headings = [data for within, data in read.texts if within in ("h2", "h3")]
    parts = ["Phases and interventions", "Joint positions", "Joint torques", "Body", "Timing"]
    assert headings[0] == "Side by side"
    assert headings[1].startswith("with: a1-walk")
    assert headings[2:7] == parts
    assert headings[7].startswith("without: a1-walk")
    assert headings[8:13] == parts
    names = [name for name, _ in charts(read)]
    body = ["Tilt", "Angular velocity", "Work and lateness", "Age of the newest state"]
    assert names == [*JOINTS, *JOINTS, *body] * 2
    assert [set(lines) for _, lines in charts(read)][:12] == [{"target", "commanded", "measured"}] * 12


def test_nothing_is_fetched_and_the_same_logs_give_the_same_page(real: Path, page: str) -> None:
    read = Reader(page)
    links = [one[key] or "" for _, one in read.elements for key in ("src", "href") if key in one]
    assert all(link.startswith("#") for link in links)  # parts of the page itself
    assert not re.search(r"https?://|file://|@import|url\((?!#)", page)
    assert len(read.all("script")) == 1
    assert any("default-src 'none'" in (one.get("content") or "") for one in read.all("meta"))
    assert write_report(real.parent / "page.html", [real]).path.read_text() == page


def test_the_page_distinguishes_the_run_with_the_filter_from_that_without(page: str) -> None:
    read = Reader(page)
    assert {"13 Hz", "none"} <= set(cells(read))
    assert any((one.get("aria-label") or "").startswith("Speed") for one in read.all("svg"))


def test_the_numbers_match_the_logs(real: Path, page: str) -> None:
    read = Reader(page)
    shown, texts = cells(read), [data for within, data in read.texts if within == "text"]
    for name in ("with", "without"):
        said = json.loads((real / name / "log.json").read_text())
        assert f"{said['policy_seconds']:.1f}" in shown
        assert str(said["missed"]) in shown
        assert str(sum(said["interventions"].values())) in shown
        if said["work_ms"]:
            assert " / ".join(f"{said['work_ms'][key]:.2f}" for key in ("p50", "p99", "max")) in shown
        for reason, count in said["interventions"].items():
            assert f"{reason}: {grouped(count)}" in texts


def test_lines_hold_the_measured_and_commanded_values(real: Path, page: str) -> None:
    rows, drawn = rows_of(real / "with"), charts(Reader(page))
    seen = rows["state"] == 1
    believed = seen & (rows["interventions"] >> 9 & 0b1111 == 0)  # a refused value may be drawn at the edge
    assert believed.sum() > 50
    for k in range(12):
        for chart, label, name in ((k, "measured", "joint_pos"), (12 + k, "estimate", "joint_torque")):
            values, line = rows[name][:, k], drawn[chart][1][label]["mean"]
            assert values[believed].max() - 1e-2 <= max(line) <= values[seen].max() + 1e-2
            assert values[seen].min() - 1e-2 <= min(line) <= values[believed].min() + 1e-2
    assert max(drawn[26][1]["work"]["mean"]) == pytest.approx(rows["work_ms"].max(), rel=1e-3)


def test_ten_minutes_at_200_hz_make_a_small_page_that_shows_a_single_tick(tmp_path: Path) -> None:
    folder, spike = ten_minutes(tmp_path / "long", deploy(tmp_path / "short", seconds=0.1))
    written = write_report(tmp_path / "page.html", [folder])
    assert written.path.stat().st_size < 1_500_000
    drawn = charts(Reader(written.path.read_text()))
    line = drawn[4][1]["measured"]
    assert line["mean"][int(np.argmax(line["mean"]))] == 3.25
    assert line["at"][int(np.argmax(line["mean"]))] == pytest.approx(spike / 200, abs=0.01)
    assert len(line["at"]) < 400
    assert [name for name, _ in drawn[12:24]] == list(JOINTS)  # the end, enlarged
    assert [len(drawn[12][1][label]["at"]) > 250 for label in ("target", "commanded", "measured")] == [True] * 3
    assert 595.9 < min(drawn[12][1]["target"]["at"]) < 596.1


def test_many_deployments_are_folded_and_less_detailed(tmp_path: Path) -> None:
    folders = [deploy(tmp_path / "run0", seconds=3.0, loop_hz=200.0)]
    folders += [Path(shutil.copytree(folders[0], tmp_path / f"run{k}")) for k in range(1, 5)]
    few = report(tmp_path, *folders[:2])
    many = report(tmp_path, *folders)
    assert len(few.all("details")) == 2  # the events of each
    assert len(many.all("details")) == 10
    assert len(charts(many)[0][1]["measured"]["at"]) < len(charts(few)[0][1]["measured"]["at"])


def test_neither_torch_nor_mujoco_nor_onnxruntime_is_needed(tmp_path: Path) -> None:
    folder = deploy(tmp_path / "log", seconds=0.2)
    code = f"""
import sys
for name in ("torch", "mujoco", "onnxruntime", "scipy"):
    sys.modules[name] = None  # its import is an ImportError
from body_transformer.pictures import own_style
from body_transformer.report.page import write_report
print(write_report({str(tmp_path / "page.html")!r}, [{str(folder)!r}]).deployments[0].label)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "log\n"


# -- content -----------------------------------------------------------------------------------------------------------


def test_the_first_drawing_of_a_size_is_like_the_next() -> None:
    values, marks = np.full(100, 0.4), {"p50": 0.4, "max": 0.5, "period": 10.0}  # the first two names nearly overlap
    svg._axes.cache_clear()
    with own_style(svg.PAGE_STYLE):
        texts = [re.findall(r">([a-z0-9]+)</text>", histogram("work", "", values, marks).svg) for _ in range(2)]
    assert texts[0] == texts[1]


@pytest.mark.filterwarnings("error")
def test_the_histogram_shows_one_slow_tick_among_many(tmp_path: Path) -> None:
    class OnceSlow(SinePolicy):
        def __call__(self, obs: np.ndarray) -> np.ndarray:
            self.takes_s = 0.012 if self.calls == 70 else 0.001
            return super().__call__(obs)

    folder = deploy(tmp_path, policy=OnceSlow())
    read = report(tmp_path, folder)
    labels = [one.get("aria-label") or "" for one in read.all("svg")]
    (label,) = (label for label in labels if label.startswith("Work of the ticks that ran the policy"))
    assert label.endswith(", 150 ticks: p50 1 ms; p99 1 ms; max 12 ms; period 20 ms")
    bars = [heights(path) for path in read.paths("bar")]
    assert len(bars) == 2
    assert all(max(ends) - min(ends) > 20 for ends in bars)  # a single tick is visible


def test_the_heading_and_the_facts_describe_the_deployment(tmp_path: Path) -> None:
    folder = deploy(tmp_path / "log", more={"robot": "sim", "filter": {"order": 2, "cutoff_hz": 13.0}})
    read = report(tmp_path, folder)
    assert ("h1", "a1-walk on sim, 3.0 s") in read.texts
    text = read.text()
    assert "the policy ran 3.0 s of 3 s · policy 50 Hz, commands 50 Hz · low-pass 13 Hz" in text
    assert "It ended as planned." in text
    assert "The runtime never intervened." in text
    assert "robot not recorded" not in text
    assert "robot not recorded" in report(tmp_path, deploy(tmp_path / "other", seconds=0.1)).text()


def test_a_stop_is_explained_and_drawn_in_every_chart(tmp_path: Path) -> None:
    folder = deploy(tmp_path / "log", fault=tilting)
    written = write_report(tmp_path / "page.html", [folder])
    read = Reader(written.path.read_text())
    ((stopped, why),) = written.stopped.items()
    assert stopped == folder
    assert why.startswith("tilted: 1.0")
    assert ("p", f"{why}.") in read.texts
    assert "It ended early after 2.5" in read.text()
    assert len(read.paths("stop")) == 29  # every chart over time
    keys = [one for one in read.all("line") if one.get("class") == "stop"]
    assert len(keys) == 4  # one per legend
    assert ("td", "tilted") not in read.texts
    assert ("text", "tilted: 1") in read.texts


def test_interventions_are_counted_by_reason_and_placed_in_time(tmp_path: Path) -> None:
    folder = deploy(tmp_path / "log", fault=lambda state, seconds: [] if 1.0 < seconds < 1.08 else [state])
    counts = json.loads((folder / "log.json").read_text())["interventions"]
    assert counts["state late"] >= 1
    read = report(tmp_path, folder)
    (label,) = (label for one in read.all("svg") if (label := one.get("aria-label") or "").startswith("Phases"))
    ordered = sorted(counts, key=lambda reason: -counts[reason])
    assert label.split(" of the runtime: ")[1] == "; ".join(f"{reason}: {counts[reason]}" for reason in ordered)
    rows = rows_of(folder)
    end = (rows["tick"][-1] + 1) / 50
    late = rows["tick"][(rows["interventions"] >> 8 & 1) == 1] / 50
    places = [float(at) for at in re.findall(r"M ([\d.]+)", read.paths("intervention")[ordered.index("state late")])]
    shaded = [float(at) for path in read.paths("phase")[:4] for at in re.findall(r"[ML] ([\d.]+)", path)]
    np.testing.assert_allclose(places, min(shaded) + np.ptp(shaded) * late / end, atol=1)


def test_a_line_is_broken_where_no_state_arrived(tmp_path: Path) -> None:
    from body_transformer.deploy.safety import SafetyConfig

    folder = deploy(tmp_path, fault=lambda state, seconds: [] if 1.5 < seconds < 1.8 else [state],
                    safety=SafetyConfig(stale_ms=500.0))  # fmt: skip
    describe(folder, {"safety": json.loads((folder / "log.json").read_text())["safety"] | {"stale_ms": 100.0}})
    page = report(tmp_path, folder)
    _, commanded, measured = page.paths("line")[:3]
    assert (measured.count("M"), commanded.count("M")) == (2, 1)


def test_refused_measurements_do_not_set_the_axis(tmp_path: Path) -> None:
    from dataclasses import replace

    def absurd(state, seconds):
        return [replace(state, joint_pos=state.joint_pos + 1e6)] if state.sequence == 300 else [state]

    folder = deploy(tmp_path, fault=absurd, robot={"hz": 50.0}, seconds=6.0)
    assert json.loads((folder / "log.json").read_text())["interventions"]["state absurd"] == 1
    page = report(tmp_path, folder)
    assert all(abs(value) < 10 for _, lines in charts(page)[:12] for value in lines["measured"]["mean"])
    assert "Measurements that the runtime refused are drawn too" in page.text()


def test_limits_are_drawn_against_the_torques_and_near_the_positions(tmp_path: Path) -> None:
    folder = deploy(tmp_path, seconds=0.5)
    text = write_report(tmp_path / "page.html", [folder]).path.read_text()
    charts = [Reader(one) for one in re.findall(r'<figure class="chart">.*?</figure>', text, re.S)]
    torques = [chart for chart in charts if "of 33.5 Nm" in chart.text()]
    assert [len(chart.paths("limit")) for chart in torques] == [2] * 12
    thigh = next(chart for chart in charts if chart.text().startswith("FL_thigh_joint") and " rad" in chart.text())
    assert "−1.05 to 4.19 rad" in thigh.text()
    assert thigh.paths("limit") == []  # it is far away


def test_deployments_side_by_side_have_the_recorded_speed_and_roughness(tmp_path: Path) -> None:
    command = {"command": [0.5, 0.0, 0.0], "robot": "sim"}
    one = deploy(tmp_path / "with", more={"filter": {"order": 2, "cutoff_hz": 13.0}, **command,
                                          "report": {"mean_speed_mps": 0.471}})  # fmt: skip
    seen = {"mean_speed_mps": 0.502, "fell": True, "fell_after_s": 2.04}
    two = deploy(tmp_path / "without", True, more={"filter": None, **command, "report": seen})
    read = report(tmp_path, one, two)
    assert [text for text in cells(read) if text in ("13 Hz", "none", "0.471", "0.502")] == [
        "13 Hz", "0.471", "none", "0.502"
    ]  # fmt: skip
    labels = [one.get("aria-label") or "" for one in read.all("svg")]
    by_title = {label.split(",")[0]: label for label in labels}
    assert by_title["Speed"] == "Speed, m/s, forward: with: 0.471, none; without: none, 0.502"
    assert "with, policy's targets: " in by_title["Roughness of joint targets"]
    assert "without, commanded: " in by_title["Roughness of joint targets"]
    assert ("small", "commanded: 0.5") in read.texts
    assert ("td", "as planned; it fell after 2.0 s") in read.texts
    assert ("p", "It ended as planned; it fell after 2.0 s.") in read.texts
    unknown = report(tmp_path, deploy(tmp_path / "other", seconds=0.2)).text()
    assert "No log records the speed of the robot." in unknown
    assert "Speed" not in unknown


def test_a_dry_run_and_a_truncated_log_are_noted(tmp_path: Path) -> None:
    assert "dry run: nothing was sent" in report(tmp_path, deploy(tmp_path / "dry", dry_run=True, seconds=0.2)).text()
    runtime, robot = make(seconds=None, log_s=2.0)
    robot.fault = lambda state, seconds: runtime.stop("enough") or [state] if seconds > 10 else [state]
    runtime.run()
    text = report(tmp_path, runtime.save_log(tmp_path / "long")).text()
    assert re.search(r"the log kept the last 108 of \d+ ticks", text)
    assert "emergency stop: enough" in text


def test_a_deployment_that_never_ran_the_policy_is_shown(tmp_path: Path) -> None:
    read = report(tmp_path, deploy(tmp_path / "log", fault=lambda state, seconds: []))
    assert "no state: in 5 s" in read.text()
    assert "The policy never ran." in read.text()


def test_texts_of_a_log_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    folder = deploy(tmp_path / "<b>log", seconds=0.2)
    joints = [evil, *JOINTS[1:]]
    stop = {"reason": evil, "detail": evil}
    event = {"tick": 0, "time_s": 0.0, "kind": evil, "text": evil}
    describe(folder, {"robot": evil, "experiment": evil, "joints": joints, "stop": stop, "events": [event]})
    other = deploy(tmp_path / "other", seconds=0.2)
    read = report(tmp_path, folder, other)
    assert len(read.all("script")) == 1
    assert read.all("b") == [{}]  # the sentence about the stop
    assert ("td", evil) in read.texts


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_in_a_browser_shows_values_and_does_not_scroll_sideways(page: str, tmp_path: Path, width: int) -> None:
    program = chromium.find()
    if program is None:
        pytest.skip(f"no browser here: none of {', '.join(chromium.NAMES)} is installed")
    file = tmp_path / "page.html"
    file.write_text(page)
    with chromium.Browser(program, tmp_path / "profile") as browser:
        browser.resize(width, 900)
        browser.open(file)
        assert browser.complaints == []
        assert browser.requests == [file.as_uri()]
        assert browser.value("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
        place = "const svg = document.querySelector('svg[data-lines]'); svg.scrollIntoView({block: 'center'});"
        x, y = browser.value(
            f"(() => {{ {place} const r = svg.getBoundingClientRect(); return [r.left + r.width / 2, r.top + 50]; }})()"
        )
        browser.point_at(x, y)
        shown = browser.value("document.querySelector('.chart .values:not([hidden])').innerText")
        assert all(label in shown for label in ("target", "commanded", "measured"))
        assert browser.complaints == []
