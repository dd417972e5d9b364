"""The page in a real browser, if one is installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from body_transformer.report.page import write_report

from . import chromium
from .run_folders import write_demo, write_run

SIZES = {"desk": (1200, 900), "phone": (390, 800)}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    write_demo(root, (0, 1))
    write_run(root, "bot-mix", steps_done=200, evaluated=False, film="gif")
    return write_report(root / "a report.html", [root / "demo"], title="Tom & <Jerry>").path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    program = chromium.find()
    if program is None:
        pytest.skip(f"no browser here: none of {', '.join(chromium.NAMES)} is installed")
    with chromium.Browser(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_opens_from_disk_and_everything_shows(
    browser: chromium.Browser, page: Path, size: str, is_dark: bool
) -> None:
    browser.resize(*SIZES[size], is_dark)
    browser.open(page)
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [page.as_uri()]
    assert browser.value("document.title") == "Tom & <Jerry>"
    widths = browser.value("Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))")
    assert len(widths) == 7  # the body, its mask and five films
    assert all(width > 0 for width in widths)
    assert browser.value("[...document.images].every(i => i.getBoundingClientRect().width > 50)")
    assert browser.value("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    ink, ground = browser.value(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (sum(rgb(ink)) > sum(rgb(ground))) == is_dark


def test_the_values_under_the_pointer_are_shown(browser: chromium.Browser, page: Path) -> None:
    browser.resize(*SIZES["desk"])
    browser.open(page)
    place = "const svg = document.querySelector('.chart svg'); svg.scrollIntoView({block: 'center'});"
    x, y = browser.value(
        f"(() => {{ {place} const r = svg.getBoundingClientRect(); return [r.left + r.width * 0.2, r.top + 80]; }})()"
    )
    browser.point_at(x, y)
    shown = browser.value("document.querySelector('.chart .values').innerText")
    assert shown.startswith("step ")
    assert all(label in shown for label in ("bot-hard", "mlp", "mlp-equal-time", "transformer"))
    assert browser.value("document.querySelectorAll('.chart .pointer circle').length") >= 4
    browser.point_at(2, 2)
    assert browser.value("document.querySelector('.chart .values').hidden") is True
    assert browser.complaints == []


def test_the_browser_reports_errors_and_requests(browser: chromium.Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://127.0.0.1:9/x.png'><script>nothing()</script>")
    browser.open(bad)
    assert any("nothing" in text for text in browser.complaints)
    assert "http://127.0.0.1:9/x.png" in browser.requests


def rgb(colour: str) -> list[int]:
    return [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
