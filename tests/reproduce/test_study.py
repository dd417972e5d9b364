"""The paper's tables and figures as data."""

import pytest

from body_transformer.config import load_experiment
from body_transformer.model.config import PolicyConfig
from body_transformer.model.policy import Policy
from body_transformer.reproduce.study import SEED, load_study, study_names


def test_the_studies_are_these():
    assert study_names() == [
        "ablations",
        "adroit",
        "layers",
        "rl",
        "rl-random-mask",
        "rl-shared-tokenizer",
        "scaling",
        "table1",
    ]


def test_an_unknown_study_is_named():
    with pytest.raises(ValueError, match="unknown table or figure 'table2'; did you mean 'table1'"):
        load_study("table2")


@pytest.mark.parametrize("name", study_names())
def test_every_arm_can_be_trained(name):
    for arm in load_study(name).arms:
        experiment = load_experiment(arm.experiment)
        learning = experiment.imitation or experiment.rl
        assert learning is not None
        config = experiment.policy_config(arm.variant).to_dict()
        for key, value in arm.flags.items():
            part, field = key.split(".")
            field = field.replace("-", "_")
            assert hasattr(experiment.policy if part == "policy" else learning, field)
            if part == "policy":
                config[field] = 0 if value == SEED else value
        PolicyConfig.from_dict(config)


def test_sizes_lie_on_both_sides_of_the_papers():
    study = load_study("scaling")
    layout = load_experiment("mocapact").layout()
    counts = set()
    for arm in study.arms:
        flags = {key.split(".")[1].replace("-", "_"): value for key, value in arm.flags.items()}
        config = load_experiment("mocapact").policy_config(arm.variant).to_dict() | flags
        counts.add(Policy(layout, PolicyConfig.from_dict(config)).num_parameters)
    assert 17_544_120 in counts
    assert min(counts) < 2_000_000
    assert max(counts) > 35_000_000


def test_studies_share_the_runs_that_are_the_same(tmp_path):
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


def test_every_seed_has_a_random_mask_of_its_own(tmp_path):
    runs = [run for run in load_study("ablations").runs(tmp_path, 3, ()) if "bot-hard-random" in run.args]
    assert [run.args[-2:] for run in runs] == [("--policy.mask-seed", str(seed)) for seed in range(3)]


@pytest.mark.parametrize("flag", ["--imitation.num-demos", "--imitation.num_demos=3", "--no-eval", "--seed"])
def test_what_sets_the_arms_apart_cannot_be_set_for_all(tmp_path, flag):
    with pytest.raises(ValueError, match="cannot be set for all runs of 'adroit'"):
        load_study("adroit").runs(tmp_path, 1, (flag, "3"))
