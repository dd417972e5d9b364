from dataclasses import replace

import pytest
import torch

from body_transformer import Critic, Policy
from body_transformer.experiment import Experiment, load_experiment
from body_transformer.model.config import PolicyConfig

MASKED = ["transformer", "bot-hard", "bot-mix", "bot-hard-random", "bot-mix-random"]


def count(experiment: Experiment, config: PolicyConfig) -> int:
    """Return the parameters of the experiment's policy and, if it has one, its critic."""
    layout = experiment.layout()
    with torch.device("cpu"):
        total = Policy(layout, config).num_parameters
        return total + Critic(layout, config).num_parameters if experiment.critic else total


PAPER = [
    *(("mocapact", variant, 17_544_120) for variant in ("transformer", "bot-hard", "bot-mix")),
    ("mocapact", "bot-soft", 17_544_120 + 15),
    ("mocapact", "mlp", 16_696_656),
    ("adroit-door", "transformer", 17_131_292),
    ("adroit-door", "bot-hard", 17_131_292),
    ("adroit-door", "bot-soft", 17_131_292 + 11),
    ("adroit-door", "mlp", 14_305_524),
    ("adroit-hammer", "bot-mix", 17_132_890),
    ("adroit-hammer", "mlp", 14_302_770),
    ("adroit-relocate", "bot-hard", 17_131_934),
    ("adroit-relocate", "mlp", 14_308_726),
    *(("humanoid-mod", variant, 688_762) for variant in MASKED),
    ("humanoid-mod", "mlp", 699_467),
    ("humanoid-board", "bot-mix", 688_762),
    ("humanoid-board", "mlp", 699_467),
    *(("humanoid-hill", variant, 822_650) for variant in MASKED),
    ("humanoid-hill", "mlp", 699_467),
    # with a critic that observes as much as the policy, as in the authors' code
    *(("a1-walk", variant, 546_661) for variant in MASKED),
    ("a1-walk", "mlp", 479_577),
]


@pytest.mark.parametrize(("name", "variant", "expected"), PAPER)
def test_the_number_of_parameters_is_that_of_the_paper(name, variant, expected):
    experiment = load_experiment(name)
    assert count(experiment, experiment.policy_config(variant)) == expected


@pytest.mark.parametrize(
    ("name", "variant", "changes", "expected"),
    [
        ("mocapact", "bot-hard", {"positional_encoding": True}, 17_554_360),
        ("humanoid-mod", "bot-mix", {"shared_tokenizer": True}, 673_561),
    ],
)
def test_the_ablations_have_the_papers_number_of_parameters(name, variant, changes, expected):
    experiment = load_experiment(name)
    config = replace(experiment.policy_config(variant), **changes)
    assert count(experiment, config) == expected


def test_the_humanoids_parameters_are_an_actor_a_critic_and_a_log_std():
    experiment = load_experiment("humanoid-mod")
    policy = Policy(experiment.layout(), experiment.policy_config())
    critic = Critic(experiment.layout(), experiment.policy_config())
    assert policy.num_parameters == 344_533 + 21
    assert critic.num_parameters == 344_208
    assert policy.log_std.numel() == 21
