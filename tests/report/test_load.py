"""Finding and reading complete and broken run folders."""

import json
from pathlib import Path

import pytest

from body_transformer.report.aggregate import group_runs
from body_transformer.report.load import find_folders, read_run

from .run_folders import bare_run, write_evaluation


def test_runs_are_found_by_name_or_below_a_parent_and_each_once(tmp_path: Path) -> None:
    folders = [bare_run(tmp_path, label) for label in ("bot-hard", "mlp")]
    assert find_folders([tmp_path]) == (folders, [])
    assert find_folders([folders[1], tmp_path]) == (folders[::-1], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name: demo, variant: mlp}", "'seed' is missing"),
        ("{name: demo, variant: mlp, seed: one}", "seed must be a whole number; got 'one'"),
    ],
)
def test_an_unusable_description_is_an_error_that_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "experiment.yaml").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_run(tmp_path)
    assert "experiment.yaml" in str(error.value)


def test_a_finished_run_has_its_final_evaluation_and_no_notes(tmp_path: Path) -> None:
    folder = bare_run(tmp_path)
    write_evaluation(folder, {"train": 0.5, "unseen_clips": 0.25})
    run = read_run(folder)
    assert run.is_finished
    assert {key: value.mean for key, value in run.results.items() if key[1] == "normalized_length"} == {
        ("train", "normalized_length"): 0.5,
        ("unseen_clips", "normalized_length"): 0.25,
    }
    assert (run.step, run.seed) == (400, 0)
    assert [point.step for point in run.curves["eval/train/normalized_length"]] == [100, 200, 300, 400]


def test_without_a_final_evaluation_the_last_logged_evaluations_are_used(tmp_path: Path) -> None:
    folder = bare_run(tmp_path, steps_done=350, log_every=50, evaluated=False)
    run = read_run(folder)
    assert run.notes == (
        "training is at step 350 of 400",
        "no final evaluation yet: the values shown are those of step 300",
    )
    assert run.results["train", "normalized_length"] == run.curves["eval/train/normalized_length"][-1].value


def test_a_truncated_line_is_left_out_with_a_note(tmp_path: Path) -> None:
    folder = bare_run(tmp_path)
    whole = read_run(folder)
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text + '{"step": 420, "train/lo')
    run = read_run(folder)
    assert run.notes == ("the last line of metrics.jsonl is cut off and left out",)
    assert run.curves == whole.curves
    (folder / "metrics.jsonl").write_text("rubbish\n[1]\n" + text)
    assert read_run(folder).notes == ("2 lines of metrics.jsonl cannot be read and are left out, the first is line 1",)
    assert read_run(folder).curves == whole.curves


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"splits": 3}', '{"splits": {}}', '{"splits": {"train": {"a": null}}}']
)
def test_a_broken_final_evaluation_is_noted_and_the_log_used(tmp_path: Path, text: str) -> None:
    folder = bare_run(tmp_path)
    (folder / "evaluation.json").write_text(text)
    run = read_run(folder)
    assert len(run.notes) == 1
    assert run.notes[0].startswith("evaluation.json ")
    assert run.results["train", "normalized_length"].num_episodes == 128


def test_a_run_that_has_just_begun_has_no_values_and_a_note(tmp_path: Path) -> None:
    folder = bare_run(tmp_path, steps_done=0, evaluated=False)
    (folder / "metrics.jsonl").unlink()
    run = read_run(folder)
    assert run.notes == (
        "training is at step 0 of 400",
        "nothing is logged yet: no complete line in metrics.jsonl",
        "no final evaluation yet: no values yet",
    )
    assert (run.results, run.curves, run.time_s) == ({}, {}, None)


def test_of_a_step_that_was_logged_twice_the_later_line_counts(tmp_path: Path) -> None:
    folder = bare_run(tmp_path)
    lines = [{"step": step, "train/loss": loss} for step, loss in ((10, 3.0), (20, 2.0), (10, 1.0))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(point.step, point.value.mean) for point in read_run(folder).curves["train/loss"]] == [(10, 1.0), (20, 2.0)]


def test_values_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    folder = bare_run(tmp_path)
    lines = ['{"step": 1, "a": NaN, "b": Infinity, "c": "x", "d": true, "e": 2}', '{"step": 2, "e": NaN}']
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    curves = read_run(folder).curves
    assert list(curves) == ["e"]
    assert len(curves["e"]) == 1


# -- groups ------------------------------------------------------------------------------------------------------------


def test_neighbouring_seeds_are_one_group_and_two_folders_of_one_variant_are_two(tmp_path: Path) -> None:
    for label in ("mlp", "mlp-equal-time"):
        for seed in (10, 2):
            bare_run(tmp_path, label, seed)
    groups = group_runs([read_run(folder) for folder in find_folders([tmp_path])[0]])
    assert [(one.label, one.variant, [run.seed for run in one.runs]) for one in groups] == [
        ("mlp", "mlp", [2, 10]),
        ("mlp-equal-time", "mlp", [2, 10]),
    ]


def test_a_given_label_is_the_name_of_a_group(tmp_path: Path) -> None:
    folder = bare_run(tmp_path, "mlp-equal-time")
    described = (folder / "experiment.yaml").read_text()
    (folder / "experiment.yaml").write_text(described + "label: mlp, equal time\n")
    (group,) = group_runs([read_run(folder)])
    assert group.label == "mlp, equal time"


def test_the_same_settings_from_two_places_are_one_group_and_different_ones_are_two(tmp_path: Path) -> None:
    places = [tmp_path / name for name in "abc"]
    folders = [
        bare_run(place, seed=seed, num_steps=steps, machine=place.name)
        for place, seed, steps in zip(places, (0, 1, 0), (400, 400, 800), strict=True)
    ]
    groups = group_runs([read_run(folder) for folder in folders])
    assert [(one.label, len(one.runs)) for one in groups] == [
        ("bot-hard (imitation.num_steps 400)", 2),
        ("bot-hard (imitation.num_steps 800)", 1),
    ]


def test_one_seed_twice_is_an_error_that_names_both(tmp_path: Path) -> None:
    folders = [bare_run(tmp_path / name) for name in "ab"]
    with pytest.raises(ValueError, match=r"seed 0 of demo bot-hard was given twice: .*/a/.* and .*/b/"):
        group_runs([read_run(folder) for folder in folders])


def test_seeds_with_different_settings_are_noted(tmp_path: Path) -> None:
    folders = [bare_run(tmp_path, seed=s, num_steps=400 + s, steps_done=500) for s in (0, 1)]
    (group,) = group_runs([read_run(folder) for folder in folders])
    assert group.notes == ("its seeds were run with different settings: imitation.num_steps",)
