"""The paper's tables and figures as data."""

import re

import pytest

from body_transformer.cli import train, train_rl
from body_transformer.experiment import load_experiment
from body_transformer.model.config import PolicyConfig
from body_transformer.model.policy import Policy
from body_transformer.reproduce.study import SEED, load_study, study_names
from body_transformer.schema import build, plain


def test_an_unknown_study_is_named_with_the_known_ones():
    message = (
        "unknown table or figure 'table2'; did you mean 'table1'? have: 'ablations', 'adroit', 'layers', 'rates', "
        "'rl', 'rl-random-mask', 'rl-shared-tokenizer', 'scaling', 'table1'"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        load_study("table2")


@pytest.mark.parametrize("name", study_names())
def test_every_arm_can_be_trained(name):
    for arm in load_study(name).arms:
        experiment = load_experiment(arm.experiment)
        learning = experiment.imitation or experiment.rl
        assert learning is not None
        config = plain(experiment.policy_config(arm.variant))
        for key, value in arm.flags.items():
            part, field = key.split(".")
            field = field.replace("-", "_")
            assert hasattr(experiment.policy if part == "policy" else learning, field)
            if part == "policy":
                config[field] = 0 if value == SEED else value
        build(PolicyConfig, config, "policy")


def test_sizes_range_from_below_to_above_those_of_the_paper():
    study = load_study("scaling")
    layout = load_experiment("mocapact").layout()
    counts = set()
    for arm in study.arms:
        flags = {key.split(".")[1].replace("-", "_"): value for key, value in arm.flags.items()}
        config = plain(load_experiment("mocapact").policy_config(arm.variant)) | flags
        counts.add(Policy(layout, build(PolicyConfig, config, "policy")).num_parameters)
    assert 17_544_120 in counts
    assert min(counts) < 2_000_000
    assert max(counts) > 35_000_000


def test_the_mlp_has_four_sizes_like_the_transformers():
    layout, sizes = load_experiment("mocapact").layout(), {}
    for arm in load_study("scaling").arms:
        flags = {key.split(".")[1].replace("-", "_"): value for key, value in arm.flags.items()}
        config = plain(load_experiment("mocapact").policy_config(arm.variant)) | flags
        count = Policy(layout, build(PolicyConfig, config, "policy")).num_parameters
        sizes.setdefault(arm.label, []).append(count)
    for mlp, transformer in zip(*(sorted(sizes[name]) for name in ("mlp", "transformer")), strict=True):
        assert mlp == pytest.approx(transformer, rel=0.15)


def test_learning_rates_are_tuned_on_a_seed_of_no_table(tmp_path):
    """At the experiment's rate, the arm has no flag, as in the tables."""
    tuned, table = (load_study(name).runs(tmp_path, 1, ()) for name in ("rates", "table1"))
    assert {run.folder.name for run in tuned} == {"seed100"}
    assert {run.folder.parent for run in table} <= {run.folder.parent for run in tuned}
    assert load_experiment("mocapact").imitation.learning_rate == 1e-4


def test_studies_share_equal_runs(tmp_path):
    folders = [
        {run.folder for run in load_study(name).runs(tmp_path, 2, ())} for name in ("table1", "ablations", "layers")
    ]
    hard = {tmp_path / "mocapact" / "bot-hard" / f"seed{seed}" for seed in range(2)}
    assert folders[0] & folders[1] & folders[2] == hard


def test_the_papers_numbers_are_three_for_each_cell():
    for name in ("table1", "ablations"):
        study = load_study(name)
        for arm in study.arms:
            for metric in study.metrics:
                for split in study.splits:
                    maximum, mean, std = arm.paper[metric][split]
                    assert 1 > maximum > mean > std > 0


def test_every_seed_has_its_own_random_mask(tmp_path):
    runs = [run for run in load_study("ablations").runs(tmp_path, 3, ()) if "bot-hard-random" in run.args]
    assert [run.args[-2:] for run in runs] == [("--policy.mask-seed", str(seed)) for seed in range(3)]


@pytest.mark.parametrize(
    ("study", "flag"),
    [
        ("adroit", "--imitation.num-demos"),
        ("adroit", "--imitation.num_demos=3"),
        ("adroit", "--no-eval"),
        ("adroit", "--seed"),
        ("rl-shared-tokenizer", "--policy.shared-tokenizer"),
        ("rl-shared-tokenizer", "--policy.no-shared-tokenizer"),
    ],
)
def test_a_flag_that_distinguishes_the_arms_cannot_be_set_for_all(tmp_path, study, flag):
    with pytest.raises(ValueError, match=f"cannot be set for all runs of '{study}'"):
        load_study(study).runs(tmp_path, 1, (flag, "3"))


@pytest.mark.parametrize(("name", "num_seeds"), [("rl", 1), ("rl-random-mask", 2), ("rl-shared-tokenizer", 1)])
def test_the_command_line_takes_every_flag_of_the_studies_of_reinforcement(name, num_seeds, tmp_path, monkeypatch):
    pytest.importorskip("mjlab", reason="needs the extra 'rl'")
    asked = []
    monkeypatch.setattr(train_rl, "run_training", lambda run, found, quiet: asked.append(found["policy"]))
    study = load_study(name)
    for run in study.runs(tmp_path, num_seeds, ["--rl.max-iterations", "230"]):
        train.main([*run.args, "--out", str(run.folder), "--quiet"])
    assert len(asked) == num_seeds * len(study.arms)
    if name == "rl-shared-tokenizer":
        assert [policy["shared_tokenizer"] for policy in asked] == [False, True] * 6
    if name == "rl-random-mask":
        assert [policy["mask_seed"] for policy in asked if "random" in policy["variant"]] == [0, 1] * 4


def test_the_ablations_of_reinforcement_share_the_runs_of_its_figure(tmp_path):
    main_figure, masks, tokenizers = (
        {run.folder for run in load_study(name).runs(tmp_path, 1, ())}
        for name in ("rl", "rl-random-mask", "rl-shared-tokenizer")
    )
    assert len(main_figure & masks) == 4
    assert len(main_figure & tokenizers) == 6
    assert tmp_path / "humanoid-board" / "bot-mix,shared-tokenizer" / "seed0" in tokenizers


def test_every_arm_is_compared_with_one_of_its_study_and_task():
    for name in study_names():
        arms = load_study(name).arms
        there = {(arm.experiment, arm.label) for arm in arms}
        assert all((arm.experiment, arm.against) in there for arm in arms if arm.against)


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["humanoid-mod"], 4),
        (["humanoid-mod/bot-mix"], 1),
        (["bot-mix"], 4),
        (["humanoid-mod", "humanoid-board/mlp", "humanoid-mod/mlp"], 5),
        ([], 16),
    ],
)
def test_a_part_of_a_study_can_be_chosen(tmp_path, only, expected):
    assert len(load_study("rl").runs(tmp_path, 1, (), only)) == expected


def test_an_unknown_part_is_named(tmp_path):
    with pytest.raises(ValueError, match="unknown experiment or arm 'humanoid-mod/bot-max'; did you mean"):
        load_study("rl").runs(tmp_path, 1, (), ["humanoid-mod/bot-max"])
