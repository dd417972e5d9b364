"""Run folders for tests of reports: files in the real formats, with known, invented numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from PIL import Image, ImageDraw

from body_transformer import BodyGraph, Layout, Policy, PolicyConfig, robots
from body_transformer.schema import plain

SPLITS = ("train", "unseen_clips", "unseen_tilts")
METRICS = ("normalized_length", "normalized_return")
LEVELS = {"mlp": 0.70, "mlp-equal-time": 0.84, "transformer": 0.80, "bot-hard": 0.92}


def write_run(
    root: Path,
    label: str = "bot-hard",
    seed: int = 0,
    *,
    experiment: str = "demo",
    title: str = "A humanoid follows motions",
    num_steps: int = 400,
    steps_done: int | None = None,
    log_every: int = 20,
    evaluated: bool = True,
    film: str | None = "webp",
    checkpoint: bool = True,
    level: float | None = None,
    **settings: Any,
) -> Path:
    """Write `root/<experiment>/<label>/seed<k>`; the variant is the label up to "-equal"."""
    folder = root / experiment / label / f"seed{seed}"
    variant = label.split("-equal")[0]
    policy = small_policy(variant)
    described = {
        "name": experiment,
        "title": title,
        "variant": variant,
        "seed": seed,
        "policy": plain(policy.config),
        "imitation": {"num_steps": num_steps, "num_epochs": None, "learning_rate": 1e-3},
        "num_steps": num_steps,
        "num_parameters": policy.num_parameters,
        "package_version": "0.1.0",
        "git_commit": "4f38bbc0c0ffee00000000000000000000000000",
        **settings,
    }
    level = (LEVELS.get(label, 0.6) if level is None else level) + 0.012 * seed
    done = num_steps if steps_done is None else steps_done
    lines = metric_lines(level, done, log_every, 2.0 if variant == "mlp" else 0.5)
    write_files(folder, described, lines)
    if evaluated:
        write_evaluation(folder, {split: level - 0.12 * index for index, split in enumerate(SPLITS)})
    if film:
        write_film(folder / f"film.{film}", seed)
    if checkpoint:
        policy.save(folder / "checkpoints" / str(done))
        (folder / "checkpoints" / "last").symlink_to(str(done))
    return folder


bare_run = partial(write_run, film=None, checkpoint=False)
"""`write_run` without a film and a checkpoint, which take most of its time."""


def write_files(
    folder: Path,
    described: Mapping[str, Any],
    lines: Iterable[Mapping[str, Any]],
    splits: Mapping[str, Any] | None = None,
    cut_off: str = "",
) -> Path:
    """Write the description and the log of a run, and its final evaluation if there are values."""
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(yaml.safe_dump(dict(described), sort_keys=False))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + cut_off)
    if splits is not None:
        (folder / "evaluation.json").write_text(json.dumps({"splits": splits, "num_episodes": 128, "seed": 0}))
    return folder


def metric_lines(level: float, num_steps: int, log_every: int, steps_per_ms: float) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for step in range(log_every, num_steps + 1, log_every):
        stamp = {"step": step, "epoch": step / 100, "time_s": round(step / steps_per_ms / 50, 3)}
        loss = (1.1 - level) * (0.02 + math.exp(-step / 60)) * (1 + 0.15 * math.sin(step * 1.7 + 40 * level))
        lines.append({**stamp, "train/loss": loss, "train/learning_rate": 1e-3 * (1 - step / num_steps / 2)})
        if step % 100 == 0:
            grown = level * (1 - math.exp(-step / 120))
            lines.append(
                {
                    **stamp,
                    **{f"eval/{s}/{m}": estimate(grown - 0.12 * k) for m in METRICS for k, s in enumerate(SPLITS)},
                }
            )
    return lines


def estimate(mean: float, half: float = 0.02, num_episodes: int = 128) -> dict[str, float]:
    return {"mean": mean, "low": mean - half, "high": mean + half, "num_episodes": num_episodes}


def write_evaluation(folder: Path, means: dict[str, float], metrics: Sequence[str] = METRICS) -> None:
    splits = {
        split: {metric: estimate(mean - 0.05 * k) for k, metric in enumerate(metrics)} for split, mean in means.items()
    }
    (folder / "evaluation.json").write_text(json.dumps({"splits": splits, "num_episodes": 128, "seed": 0}))


def small_policy(variant: str) -> Policy:
    torch.manual_seed(0)
    layout = Layout.proprioceptive(BodyGraph.from_file(robots.path("humanoid")))
    return Policy(layout, PolicyConfig(variant=variant, embed_dim=8, num_layers=2, num_heads=2, ff_dim=16, mlp_dim=12))


def write_film(path: Path, seed: int = 0, num_frames: int = 12) -> None:
    """Write a film of a pendulum beside its reference."""
    frames = []
    for number in range(num_frames):
        frame = Image.new("RGB", (240, 160), "white")
        pen = ImageDraw.Draw(frame)
        for left, lag, colour in ((70, 0.0, "#999999"), (170, 0.3 + 0.1 * seed, "#0072B2")):
            angle = 0.9 * math.sin(2 * math.pi * number / num_frames - lag)
            tip = (left + 90 * math.sin(angle), 30 + 90 * math.cos(angle))
            pen.line([(left, 30), tip], fill=colour, width=5)
            pen.ellipse([tip[0] - 9, tip[1] - 9, tip[0] + 9, tip[1] + 9], fill=colour)
        frames.append(frame)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=80, loop=0)


def write_demo(root: Path, seeds: Sequence[int] = (0,)) -> Path:
    """Write four groups, as in the built-in demonstration."""
    for seed in seeds:
        for label in LEVELS:
            write_run(root, label, seed, num_steps=2400 if label == "mlp-equal-time" else 400)
    return root / "demo"
