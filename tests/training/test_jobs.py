"""Several runs: what is there already, and who is at work in it."""

import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from body_transformer.run import Run
from body_transformer.training import jobs
from body_transformer.training.jobs import Planned, run_all

ARGS = ("demo", "--seed", "0")


def planned(folder: Path) -> Planned:
    return Planned(folder, ARGS, "demo seed 0")


def begin(folder: Path, words: str = "demo --seed 0", finished: bool = False) -> Run:
    run = Run.create(folder, {"name": "demo", "command": f"bot train {words} --out {folder} --quiet"})
    if finished:
        (folder / "evaluation.json").write_text("{}")
    return run


def test_a_finished_run_is_not_started_again(tmp_path):
    begin(tmp_path / "run", finished=True)
    run_all([planned(tmp_path / "run")], 1, Console(quiet=True))
    assert not list(tmp_path.glob("*.log.txt"))


@pytest.mark.parametrize("words", ["demo --seed 1", "demo --seed 0 --imitation.num-steps 3"])
@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_other_arguments_is_not_taken_for_the_one_that_is_wanted(tmp_path, words, finished):
    begin(tmp_path / "run", words, finished)
    with pytest.raises(ValueError, match="begun with other arguments: demo --seed"):
        run_all([planned(tmp_path / "run")], 1, Console(quiet=True))


def test_a_run_that_somebody_else_is_at_work_in_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "POLL_S", 0.05)
    monkeypatch.setattr(jobs, "_start", lambda *job: pytest.fail("it was started a second time"))
    run = begin(tmp_path / "run")
    entered = threading.Event()

    def work() -> None:
        with run.at_work():
            entered.set()
            time.sleep(0.5)
            (run.folder / "evaluation.json").write_text("{}")

    worker = threading.Thread(target=work)
    worker.start()
    entered.wait()
    run_all([planned(run.folder)], 1, Console(quiet=True))
    assert (run.folder / "evaluation.json").is_file()
    worker.join()


def test_a_run_that_somebody_else_gave_up_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "POLL_S", 0.05)
    run = begin(tmp_path / "run")
    looks = iter([True, True, False, False])
    monkeypatch.setattr(jobs, "_is_busy", lambda job: next(looks))

    class Done:
        returncode = 0

        def poll(self) -> int:
            return 0

    def start(job: Planned, threads: str) -> Done:
        (job.folder / "evaluation.json").write_text("{}")
        return Done()

    monkeypatch.setattr(jobs, "_start", start)
    run_all([planned(run.folder)], 1, Console(quiet=True))
    assert next(looks, None) is None
