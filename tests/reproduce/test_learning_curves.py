"""Curves and tables of reinforcement learning from runs with known numbers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from body_transformer.cli.main import main
from body_transformer.report.curves import seed_mean, seed_mean_curve
from body_transformer.report.load import read_run
from body_transformer.reproduce.learning import as_markdown
from body_transformer.reproduce.study import Arm, load_study, read_study, run_folder

from ..report.run_folders import write_files

RETURN = "eval/rollouts/total_reward"


def write_run(
    folder: Path,
    returns: list[float],
    iteration_s: float = 0.5,
    last: dict[str, float] | None = None,
    num_iterations: int = 30,
) -> Path:
    """Write an evaluation every ten iterations of 64 x 1000 steps; `last` makes the run finished."""
    rl = {"num_iterations": num_iterations, "num_envs": 1000, "num_steps": 64}
    described = {"name": "humanoid-mod", "variant": "mlp", "seed": 0, "num_parameters": 688_762, "rl": rl}
    lines = []
    for step in range(1, 10 * len(returns) + 1):
        stamp = {"step": step, "env_steps": 64_000 * step, "time_s": 20.0 + iteration_s * step}  # 20 s to compile
        lines.append({**stamp, "train/value": 1.0})
        if step % 10 == 0:
            value = returns[step // 10 - 1]
            lines.append({**stamp, "eval/rollouts/total_reward": {"mean": value}, "eval/rollouts/length": {"mean": 9}})
    splits = None if last is None else {"rollouts": {name: {"mean": value} for name, value in last.items()}}
    return write_files(folder, described, lines, splits, cut_off='{"step": 99, "env_st')  # killed while it wrote


def table(name: str, out: Path, num_seeds: int) -> str:
    """Return the table of a study."""
    return as_markdown(load_study(name), read_study(load_study(name), out, num_seeds), num_seeds)


def arm_of(label: str, task: str = "humanoid-mod", study: str = "rl") -> Arm:
    return next(arm for arm in load_study(study).arms if (arm.label, arm.experiment) == (label, task))


def test_three_seeds_have_a_standard_error_and_one_has_none():
    assert seed_mean([5.0]).error is None
    found = seed_mean([1.0, 2.0, 6.0])
    assert (found.mean, found.num_seeds) == (3.0, 3)
    assert found.error == pytest.approx((7.0 / 3) ** 0.5)  # variance 14 / 2 over 3 seeds


def test_a_curve_is_the_mean_over_the_seeds_that_were_evaluated_there(tmp_path):
    seeds = [
        read_run(write_run(tmp_path / "seed0", [10.0, 20.0, 30.0], 0.5)),
        read_run(write_run(tmp_path / "seed1", [20.0, 40.0], 0.7)),
    ]
    points = seed_mean_curve(seeds, RETURN)
    assert [point.env_steps for point in points] == [640_000, 1_280_000, 1_920_000]
    assert [point.time_s for point in points] == pytest.approx([26.0, 32.0, 35.0])
    assert [point.value.mean for point in points] == [15.0, 30.0, 30.0]
    assert [point.value.error for point in points] == [pytest.approx(5.0), pytest.approx(10.0), None]
    assert [point.value.num_seeds for point in points] == [2, 2, 1]


def test_a_curve_has_no_point_where_only_one_of_two_seeds_was_evaluated(tmp_path):
    often = read_run(write_run(tmp_path / "seed0", [10.0, 20.0, 30.0]))
    rarely = replace(often, curves={RETURN: often.curves[RETURN][::2]})
    assert [point.value.mean for point in seed_mean_curve([often, rarely], RETURN)] == [10.0, 30.0]


def test_the_time_of_an_iteration_excludes_the_start(tmp_path):
    run = read_run(write_run(tmp_path / "run", [1.0], 0.25))
    assert run.iteration_s == pytest.approx(0.25)
    assert (run.env_steps, run.total_env_steps) == (640_000, 1_920_000)


def test_the_table_has_the_last_evaluations_of_finished_seeds(tmp_path):
    arm = arm_of("bot-mix")
    for seed, value in enumerate([4000.0, 4600.0]):
        last = {"total_reward": value, "length": 900.0 + 50 * seed, "forward_speed": 3.0 + 0.5 * seed}
        write_run(run_folder(tmp_path, arm, seed), [100.0, 200.0, 300.0], last=last)
    write_run(run_folder(tmp_path, arm, 2), [100.0])
    rows = table("rl", tmp_path, 5).splitlines()
    assert rows[4].split(" | ")[4:7] == ["return", "length, steps", "forward speed, m/s"]
    mine = next(row for row in rows if row.startswith("| humanoid-mod | bot-mix |"))
    cells = ["2 of 5, 1 unfinished", "1.92 M", "4300 ± 300", "925.0 ± 25.0", "3.25 ± 0.25", "0.50 ± 0.00", "688,762 |"]
    assert mine.split(" | ")[2:] == cells
    assert "of 80 runs, 1 unfinished and 77 missing" in rows[2]
    assert "| humanoid-hill | mlp | 0 of 5 | – | – | – | – | – | – |" in rows


def test_a_metric_without_values_has_no_column(tmp_path):
    write_run(run_folder(tmp_path, arm_of("mlp"), 0), [5.0], last={"total_reward": 5.0, "length": 9.0})
    assert "forward speed" not in table("rl", tmp_path, 1)


def test_without_a_finished_seed_the_table_shows_the_progress(tmp_path):
    write_run(run_folder(tmp_path, arm_of("mlp"), 0), [10.0, 20.0])
    write_run(run_folder(tmp_path, arm_of("mlp"), 1), [30.0])
    write_run(run_folder(tmp_path, arm_of("bot-mix"), 0), [])
    text = table("rl", tmp_path, 2)
    assert "| humanoid-mod | mlp | 0 of 2, 2 unfinished | 0.64 M of 1.92 M | *25.0 ± 5.0* |" in text
    assert "| humanoid-mod | bot-mix | 0 of 2, 1 unfinished | 0 M of 1.92 M |" in text
    assert "no seed is finished" in text


def test_the_figure_has_panels_per_task_by_steps_and_by_time(tmp_path, capsys, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **more: (drawn.append(self), save(self, *args, **more)))
    for label in ("bot-hard", "bot-hard-random"):
        arm = arm_of(label, study="rl-random-mask")
        for seed in range(2):
            last = {"total_reward": 30.0} if seed == 0 else None
            write_run(run_folder(tmp_path, arm, seed), [10.0 + 2 * seed, 20.0, 30.0], last=last)
    assert main(["reproduce", "rl-random-mask", "--draw", "--seeds", "2", "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["files"] == [str(tmp_path / f"rl-random-mask.{kind}") for kind in ("md", "png")]
    assert Path(found["files"][1]).read_bytes().startswith(b"\x89PNG")
    mod_steps, board_steps, mod_time, board_time = drawn[0].axes
    assert [axes.get_title() for axes in drawn[0].axes] == ["humanoid-mod", "humanoid-board", "", ""]
    body, random = mod_steps.get_lines()
    assert body.get_label() == "bot-hard: 1 of 2, 1 unfinished"
    assert (body.get_linestyle(), random.get_linestyle()) == ("-", ":")
    assert body.get_color() == random.get_color()
    assert list(body.get_xdata()) == pytest.approx([0.64, 1.28, 1.92])
    assert list(body.get_ydata()) == [11.0, 20.0, 30.0]
    assert list(mod_time.get_lines()[0].get_xdata()) == pytest.approx([25 / 60, 30 / 60, 35 / 60])
    band = mod_steps.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(10.0)  # 11 less the standard error of 10 and 12
    assert not board_steps.get_lines()
    assert not board_time.get_lines()
    assert "of 16 runs, 2 unfinished and 12 missing" in drawn[0]._suptitle.get_text()


def test_a_single_part_can_be_drawn(tmp_path, capsys):
    write_run(run_folder(tmp_path, arm_of("bot-hard", study="rl-random-mask"), 0), [10.0], last={"total_reward": 30.0})
    asked = ["reproduce", "rl-random-mask", "--draw", "--seeds", "1", "--out", str(tmp_path)]
    assert main([*asked, "--only", "humanoid-mod/bot-hard"]) == 0
    table = (tmp_path / "rl-random-mask.md").read_text()
    assert "| humanoid-mod | bot-hard | 1 |" in table
    assert not any(words in table for words in ("humanoid-board", "bot-hard-random", "Not complete"))
