"""A page about runs of reinforcement learning."""

import json
import re
from html import unescape
from pathlib import Path

from body_transformer.report.load import read_run
from body_transformer.report.page import write_report
from body_transformer.schema import plain

from .run_folders import estimate, small_policy, write_files


def write_run(root: Path, variant: str, seed: int, level: float, finished: bool = True) -> Path:
    """Write four iterations of 64 steps with an evaluation after the second and the last."""
    policy = small_policy(variant)
    described = {
        "name": "humanoid-mod",
        "variant": variant,
        "seed": seed,
        "policy": plain(policy.config),
        "rl": {"task": "humanoid-mod", "num_envs": 8, "num_steps": 8, "num_epochs": 5, "num_iterations": 4},
        "num_steps": 4,
        "num_parameters": 699_467,
    }
    lines = []
    for step in range(1, 5 if finished else 4):
        stamp = {"step": step, "env_steps": 64 * step, "time_s": 0.5 * step}
        lines.append({**stamp, "collect_s": 0.3, "train/value": 1.0, "train/return": level * step})
        if step in (2, 4):
            lines.append({**stamp, "eval/rollouts/total_reward": estimate(level * step, 1.0, 100)})
    splits = {"rollouts": {"total_reward": estimate(level * 4, 1.0, 100)}} if finished else None
    folder = write_files(root / variant / f"seed{seed}", described, lines, splits)
    policy.save(folder / "checkpoints" / "4")
    return folder


def charts(page: str) -> dict[tuple[str, str], list[dict]]:
    """Return the lines of every chart by (title, horizontal axis)."""
    found = {}
    for figure in re.findall(r'<figure class="chart">.*?</figure>', page, re.S):
        title = re.search(r"<figcaption>(.*?)</figcaption>", figure)[1]
        lines = json.loads(unescape(re.search(r'data-lines="(.*?)"', figure)[1]))
        found[title, re.search(r'data-x="(.*?)"', figure)[1]] = lines
    return found


def test_returns_are_drawn_by_environment_steps_and_by_time(tmp_path):
    for seed in range(2):
        write_run(tmp_path / "runs", "mlp", seed, 10.0 + 2 * seed)
    write_report(tmp_path / "page.html", [tmp_path / "runs"])
    page = (tmp_path / "page.html").read_text()
    found = charts(page)
    (line,) = found["total reward on rollouts", "environment steps"]
    assert line["at"] == [128, 256]
    assert line["mean"] == [22.0, 44.0]
    (line,) = found["total reward on rollouts", "seconds"]
    assert line["at"] == [1.0, 2.0]
    assert ("train return", "environment steps") in found
    assert not [title for title, _ in found if "env" in title]
    folded = page[page.index("<summary>other logged values") :]
    assert "train value" in folded
    assert "collect s" in folded
    assert "train return" not in folded[: folded.index("</details>")]


def test_the_table_has_the_last_evaluation_and_how_many_steps_it_took(tmp_path):
    write_run(tmp_path / "runs", "mlp", 0, 10.0)
    written = write_report(tmp_path / "page.html", [tmp_path / "runs"])
    page = (tmp_path / "page.html").read_text()
    assert written.unfinished == []
    assert 'data-mean="40.0"' in page
    assert re.search(r"environment steps</th>", page)
    assert '<td class="number">256</td>' in page


def test_an_unfinished_run_shows_its_last_evaluation_and_a_note(tmp_path):
    run = read_run(write_run(tmp_path, "bot-hard", 0, 10.0, finished=False))
    assert run.results["rollouts", "total_reward"].mean == 20.0
    assert run.env_steps == 192
    assert run.notes == (
        "training is at step 3 of 4",
        "no final evaluation yet: the values shown are those of step 2",
    )
