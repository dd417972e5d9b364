"""Several runs at once: finished runs, stopped runs, and runs on which another process is working."""

import sys
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
def test_a_run_with_other_arguments_is_refused(tmp_path, words, finished):
    begin(tmp_path / "run", words, finished)
    with pytest.raises(ValueError, match="a run with other arguments: demo --seed"):
        run_all([planned(tmp_path / "run")], 1, Console(quiet=True))


def test_a_run_that_another_process_works_on_is_awaited(tmp_path, monkeypatch):
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


def test_a_run_that_another_process_stopped_is_resumed(tmp_path, monkeypatch):
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


SLEEPER = """
import sys, time
from pathlib import Path
time.sleep(1.0)
(Path(sys.argv[1]) / "evaluation.json").write_text("{}")
"""


def test_a_run_is_not_started_twice_if_the_process_that_started_it_was_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "POLL_S", 0.05)
    begin(tmp_path / "run")
    job = planned(tmp_path / "run")
    monkeypatch.setattr(Planned, "command", [sys.executable, "-c", SLEEPER, str(job.folder)])
    process = jobs._start(job, "1")  # it is started and has not locked the run yet
    assert not Run(job.folder).is_at_work
    monkeypatch.setattr(jobs, "_start", lambda *job: pytest.fail("it was started a second time"))
    reaper = threading.Thread(target=process.wait)
    reaper.start()
    run_all([job], 1, Console(quiet=True))
    reaper.join()
    assert job.is_finished
    assert not jobs._is_busy(job)


def failing(folder: Path) -> list[str]:
    words = "import sys; print('no such number'); sys.exit(3)"
    good = f"open({str(folder / 'evaluation.json')!r}, 'w').write('{{}}')"
    return [sys.executable, "-c", words if folder.name == "bad" else good]


def test_the_first_failure_stops_the_others_unless_keep_going_is_set(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "POLL_S", 0.05)
    monkeypatch.setattr(Planned, "command", property(lambda self: failing(self.folder)))
    both = [Planned(tmp_path / name, ARGS, name) for name in ("bad", "good")]
    for job in both:
        begin(job.folder)
    with pytest.raises(ValueError, match="the run 'bad' ended with status 3: no such number"):
        run_all(both, 1, Console(quiet=True))
    assert not both[1].is_finished
    with pytest.raises(ValueError, match="the run 'bad' ended with status 3: no such number"):
        run_all(both, 1, Console(quiet=True), keep_going=True)
    assert both[1].is_finished


def test_the_last_metrics_are_read_without_the_whole_file(tmp_path):
    run = begin(tmp_path / "run")
    assert run.last_metrics() == []
    lines = "".join(f'{{"step": {step}}}\n' for step in range(1000))
    (run.folder / "metrics.jsonl").write_text(lines + '{"step": 10')
    found = run.last_metrics(num_bytes=100)
    assert [line["step"] for line in found[:2]] == [999, 998]
    assert len(found) < 10
