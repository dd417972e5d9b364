"""Export an untrained policy of a1-walk, which stands still, for `make robot`."""

import sys

import torch

from body_transformer import Policy
from body_transformer.deploy.export import Trained, export
from body_transformer.experiment import load_experiment

if __name__ == "__main__":
    torch.manual_seed(0)
    experiment = load_experiment("a1-walk")
    policy = Policy(experiment.layout(), experiment.policy_config())
    print(export(Trained(policy, experiment.name), sys.argv[1]).folder)
