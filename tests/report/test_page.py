"""The page about runs: well-formed, self-contained, escaped, and with the numbers of the runs."""

import json
import re
import subprocess
import sys
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from jinja2 import UndefinedError

from body_transformer.pictures import own_style
from body_transformer.report.curves import Curve
from body_transformer.report.figures import Series, curves_chart, dot_plot
from body_transformer.report.page import render, write_report
from body_transformer.report.svg import NUM_STYLES, PAGE_STYLE, Line, label_styles

from .run_folders import METRICS, SPLITS, bare_run, small_policy, write_demo, write_evaluation, write_run

VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Parser that collects elements with their attributes, and texts; an element that is not closed is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.classes: list[str | None] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.outlines: list[tuple[str | None, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.classes.append(dict(attrs).get("class"))
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "path":
            self.outlines.append((self.classes[-1], dict(attrs)["d"] or ""))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        self.classes.pop()

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def paths(self, kind: str) -> list[str]:
        """Return the outlines in the parts of charts that have this name."""
        return [d for within, d in self.outlines if within == kind]

    def text(self) -> str:
        return " ".join(data for within, data in self.texts if within not in ("script", "style"))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("demo")
    runs = write_demo(root, (0, 1))
    written = write_report(root / "report.html", [runs], paragraphs=["Why this task suits a body mask."])
    assert (len(written.runs), written.unfinished) == (8, [])
    return root, written.path.read_text()


def report(folder: Path, *runs: Path, **options) -> Reader:
    return Reader(write_report(folder / "page.html", runs or [folder], **options).path.read_text())


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_page_is_well_formed_and_has_every_part(demo) -> None:
    page = Reader(demo[1])
    headings = [data for within, data in page.texts if within == "h2"]
    assert headings == [
        "Comparison", "Films", "Learning curves", "Body and mask", "What was run", "How to run it again"
    ]  # fmt: skip
    assert "Why this task suits a body mask." in page.text()
    assert len([one for one in page.all("svg") if one.get("role") == "img"]) == 9  # 6 evaluations, loss twice, rate


def test_nothing_is_fetched_from_elsewhere(demo) -> None:
    page = Reader(demo[1])
    links = [one[key] or "" for _, one in page.elements for key in ("src", "href") if key in one]
    fetching = [link for link in links if not link.startswith("#")]  # others are parts of the page itself
    assert len(fetching) == 6  # the body, its mask and four films
    assert all(link.startswith("data:") for link in fetching)
    assert not re.search(r"https?://|file://|@import|url\((?!#)", demo[1])
    assert not {"link", "iframe", "object", "embed", "base", "form"} & {name for name, _ in page.elements}
    assert any("default-src 'none'" in (one.get("content") or "") for one in page.all("meta"))


def test_the_page_is_small_and_the_same_runs_give_the_same_page(demo) -> None:
    root, text = demo
    assert len(text) < 700_000
    again = write_report(root / "report.html", [root / "demo"], paragraphs=["Why this task suits a body mask."])
    assert again.path.read_text() == text


@pytest.mark.parametrize(("name", "message"), [("page.pdf", "must end in .html"), ("folder.html", "it is a folder")])
def test_a_path_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ValueError, match=message):
        write_report(tmp_path / name, [tmp_path / "nowhere"])


def test_a_failure_leaves_the_old_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    with pytest.raises(FileNotFoundError):
        write_report(page, [tmp_path / "nowhere"])
    assert page.read_text() == "old"


def test_reporting_needs_no_torch(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    code = (
        "import sys; from body_transformer.report.page import write_report; "
        f"write_report({str(tmp_path / 'page.html')!r}, [{str(folder)!r}]); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# -- what it says ------------------------------------------------------------------------------------------------------


def test_the_table_has_the_numbers_of_the_runs(demo) -> None:
    root, text = demo
    page = Reader(text)
    cells = [one for one in page.all("td") if "data-mean" in one]
    expected = []
    for label in ("bot-hard", "mlp", "mlp-equal-time", "transformer"):
        folders = [root / "demo" / label / f"seed{seed}" for seed in (0, 1)]
        seeds = [json.loads((folder / "evaluation.json").read_text())["splits"] for folder in folders]
        for metric in METRICS:
            for split in SPLITS:
                means = [seed[split][metric]["mean"] for seed in seeds]
                expected += [sum(means) / 2, min(means), max(means)]
    found = [float(one[key] or "") for one in cells for key in ("data-mean", "data-low", "data-high")]
    assert found == pytest.approx(expected)
    shown = [data for within, data in page.texts if within == "b"]
    assert shown[: len(cells)] == [f"{mean:.3f}" for mean in expected[::3]]
    assert "The mean over 2 seeds; below it the lowest to the highest seed." in page.text()


def test_only_a_clear_winner_is_marked(tmp_path: Path) -> None:
    for label, mean in (("bot-hard", 0.9), ("mlp", 0.5)):
        folder = bare_run(tmp_path, label)
        write_evaluation(folder, {"train": mean, "unseen": 0.5}, ["success"])
    page = report(tmp_path)
    cells = [one for one in page.all("td") if "data-mean" in one]
    assert [(one["data-mean"], "best" in (one["class"] or "")) for one in cells] == [
        ("0.9", True), ("0.5", False), ("0.5", False), ("0.5", False)
    ]  # fmt: skip
    assert [data for within, data in page.texts if within == "td"][-12:].count("no clear winner") == 1


def test_texts_of_runs_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script><img src=x onerror='alert(2)'>"
    folder = write_run(tmp_path, title=evil, film=None, command=f"bot train {evil}", machine='"><script>')
    write_evaluation(folder, {evil: 0.5}, ["<b>"])
    page = report(tmp_path, paragraphs=[evil], title=evil)
    assert len(page.all("script")) == 1
    assert all((one.get("src") or "").startswith("data:") for one in page.all("img"))
    assert page.texts.count(("p", evil)) == 1
    assert page.texts.count(("h1", evil)) == 1
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_unfinished_runs_are_shown_and_marked(tmp_path: Path) -> None:
    write_run(tmp_path, "bot-hard", film=None)
    bare_run(tmp_path, "mlp", steps_done=200, evaluated=False)
    late = bare_run(tmp_path, "transformer", steps_done=20, evaluated=False)
    with (late / "metrics.jsonl").open("a") as lines:
        lines.write('{"step": 40, "tra')
    written = write_report(tmp_path / "page.html", [tmp_path])
    assert [folder.parent.name for folder in written.unfinished] == ["mlp", "transformer"]
    page = Reader(written.path.read_text())
    assert page.texts.count(("span", "unfinished")) == 4  # in two tables each
    text = page.text()
    assert "2 runs are unfinished: the values shown for them will change." in text
    assert (
        "demo mlp, seed 0: training is at step 200 of 400; no final evaluation yet: the values shown are those" in text
    )
    assert "the last line of metrics.jsonl is cut off" in text
    assert "The comparison is open until all runs are finished." in text


def test_a_run_with_only_its_description_is_reported(tmp_path: Path) -> None:
    folder = bare_run(tmp_path, steps_done=0, evaluated=False)
    (folder / "metrics.jsonl").unlink()
    text = report(tmp_path).text()
    for words in ("Nothing is evaluated yet.", "Nothing is logged yet.", "no run has a checkpoint that can be read"):
        assert words in text


def test_the_curves_hold_their_values_and_bands(demo) -> None:
    charts = [one for one in Reader(demo[1]).all("svg") if "data-lines" in one]
    lines = {line["label"]: line for line in json.loads(charts[0]["data-lines"] or "")}
    root = demo[0]
    seeds = []
    for seed in (0, 1):
        text = (root / "demo" / "bot-hard" / f"seed{seed}" / "metrics.jsonl").read_text()
        key = "eval/train/normalized_length"
        seeds.append([line[key]["mean"] for line in map(json.loads, text.splitlines()) if key in line])
    assert lines["bot-hard"]["at"] == [100, 200, 300, 400]
    assert lines["bot-hard"]["low"] == pytest.approx(seeds[0], rel=1e-3)
    assert lines["bot-hard"]["high"] == pytest.approx(seeds[1], rel=1e-3)
    assert lines["bot-hard"]["mean"] == pytest.approx([sum(both) / 2 for both in zip(*seeds, strict=True)], rel=1e-3)


def test_two_experiments_have_a_section_each_and_a_variant_one_colour_everywhere(tmp_path: Path) -> None:
    for name in ("demo", "adroit-door"):
        for label in ("mlp", "bot-hard"):
            bare_run(tmp_path, label, experiment=name, title=f"What {name} is")
    page = report(tmp_path)
    assert [data for within, data in page.texts if within == "h2"][:2] == ["What adroit-door is", "What demo is"]
    drawn = {
        (line["label"], line["style"]) for one in page.all("svg") for line in json.loads(one.get("data-lines") or "[]")
    }
    assert drawn == {("bot-hard", 0), ("mlp", 2)}


def test_no_two_labels_share_a_style_while_there_are_enough() -> None:
    labels = ["bot-hard", "mlp", *(f"mlp ({k})" for k in range(NUM_STYLES - 2))]
    assert len(set(label_styles(labels).values())) == len(labels)


def test_recorded_commands_are_shown_and_missing_ones_are_marked(tmp_path: Path) -> None:
    bare_run(tmp_path, "mlp", command="bot train demo --out 'a b'")
    lacking = bare_run(tmp_path, "mlp-equal-time", 3)
    assert f"bot train demo --out 'a b'\n# not recorded for {lacking}\n" in report(tmp_path).text()


@pytest.mark.parametrize(("suffix", "said"), [("", ""), ("-dirty", "  # the source of the runs differed from it")])
def test_the_commit_of_the_runs_can_be_checked_out(tmp_path: Path, suffix: str, said: str) -> None:
    commit = "c0ffee" + 34 * "0"
    one = bare_run(tmp_path, "mlp", git_commit=commit + suffix)
    assert f"git checkout {commit}{said}\n" in report(tmp_path, one).text()


def test_charts_keep_hostile_names_as_text_and_follow_the_style_sheet() -> None:
    evil = "</svg><script>alert(1)</script> $x$ \x01"
    at = np.arange(3.0)
    with own_style(PAGE_STYLE):
        chart = curves_chart(evil, evil, [Line(evil, 0, Curve(at, at, at, at))])
        dots = dot_plot("Speed", "m/s", [evil], [Series(evil, 0, np.ones(1))])
    for drawing in (chart.svg, dots.svg):
        page = Reader(f"<svg>{drawing}</svg>")
        assert page.all("script") == []
        assert "alert(1)" in page.text()
        assert "#" not in re.sub(r"url\(#\w+\)|#m\w+", "", drawing)  # colours are variables, else dark mode lacks them


def test_the_users_matplotlib_style_changes_nothing_and_is_kept(tmp_path: Path) -> None:
    bare_run(tmp_path)
    usual = write_report(tmp_path / "page.html", [tmp_path]).path.read_text()
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.hashsalt": "own"}):
        assert write_report(tmp_path / "page.html", [tmp_path]).path.read_text() == usual
        assert (mpl.rcParams["font.size"], mpl.rcParams["svg.hashsalt"]) == (30, "own")


def test_ids_are_unique_in_a_page(demo) -> None:
    ids = [attributes["id"] for _, attributes in Reader(demo[1]).elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_a_template_with_a_missing_name_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="is undefined"):
        render("runs.html", title="a page")


# -- films and pictures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "mime"), [("webp", "image/webp"), ("gif", "image/gif")])
def test_the_page_holds_a_film(tmp_path: Path, suffix: str, mime: str) -> None:
    folder = write_run(tmp_path, film=suffix, checkpoint=False)
    (picture,) = report(tmp_path).all("img")
    kind, _, content = (picture["src"] or "").partition(";base64,")
    assert kind == f"data:{mime}"
    assert b64decode(content) == (folder / f"film.{suffix}").read_bytes()


def test_an_mp4_film_is_a_video(tmp_path: Path) -> None:
    folder = bare_run(tmp_path)
    (folder / "film.mp4").write_bytes(b"\0\0\0\x10ftypisom\0\0\0\0\0\0\0\x08moov")
    (video,) = report(tmp_path).all("video")
    assert (video["src"] or "").startswith("data:video/mp4;base64,")
    assert {"controls", "loop", "muted", "playsinline"} <= set(video)


@pytest.mark.parametrize("suffix", ["webp", "gif"])
@pytest.mark.parametrize("content", ["truncated", "", "<svg onload='alert(1)'>"])
def test_a_film_is_recognised_by_its_content_and_shown_if_it_is_complete(tmp_path: Path, suffix: str, content: str):
    file = write_run(tmp_path, film=suffix, checkpoint=False) / f"film.{suffix}"
    file.write_bytes(file.read_bytes()[:-1] if content == "truncated" else content.encode())
    page = report(tmp_path)
    assert page.all("img") == []
    assert f"film.{suffix} is not a complete WebP, GIF or MP4 film." in page.text()


def test_a_film_too_large_for_the_page_is_named_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("body_transformer.report.media.MAX_FILM_BYTES", 100)
    write_run(tmp_path, film="gif", checkpoint=False)
    page = report(tmp_path)
    assert page.all("img") == []
    assert "too large for this page" in page.text()


def test_a_broken_checkpoint_is_replaced_by_an_older_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path, film=None)
    small_policy("bot-hard").save(folder / "checkpoints" / "100")
    (folder / "checkpoints" / "400" / "policy.json").write_text("{")
    assert [one["alt"] for one in report(tmp_path).all("img")] == ["the body as a tree", "the attention mask"]
