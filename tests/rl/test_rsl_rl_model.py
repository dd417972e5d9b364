"""BodyModel in rsl_rl: its own PPO trains it, every distribution works, and exported models give the same actions."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from body_transformer import Critic, Layout, Policy, PolicyConfig
from body_transformer.model.variants import VARIANTS

from .environments import CARTPOLE, GO1, make_env

rl_model = pytest.importorskip("body_transformer.rl.rsl_rl_model")
BodyModel = rl_model.BodyModel

from rsl_rl.runners import OnPolicyRunner  # noqa: E402
from tensordict import TensorDict  # noqa: E402

from body_transformer.rl.infer_layout import infer_layout  # noqa: E402
from body_transformer.rl.rsl_rl_config import BodyModelCfg, with_layouts  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # PyTorch's own, about TorchScript and its ONNX exporter
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:Constant folding"),
]

SMALL = {"embed_dim": 16, "num_layers": 2, "num_heads": 2, "ff_dim": 32, "mlp_dim": 24}
GROUPS = {"actor": ["actor"], "critic": ["critic"]}
DISTRIBUTIONS: dict[str, dict[str, Any] | None] = {
    "scalar std": {"class_name": "GaussianDistribution", "init_std": 0.7},
    "log std": {"class_name": "GaussianDistribution", "init_std": 0.7, "std_type": "log"},
    "fixed std": {"class_name": "GaussianDistribution", "init_std": 0.7, "learn_std": False},
    "std of the state": {"class_name": "HeteroscedasticGaussianDistribution", "init_std": 0.7},
    "log std of the state": {"class_name": "HeteroscedasticGaussianDistribution", "init_std": 0.7, "std_type": "log"},
    "beta": {"class_name": "BetaDistribution"},
    "none": None,
}


@pytest.fixture(scope="module")
def go1():
    return make_env(GO1)


@pytest.fixture(scope="module")
def layouts(go1) -> dict[str, Layout]:
    return {group: infer_layout(go1, [group]).layout for group in ("actor", "critic")}


def random_obs(batch: int = 6, seed: int = 0) -> TensorDict:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"actor": 48, "critic": 72}
    obs = {name: torch.randn(batch, size, generator=generator) for name, size in sizes.items()}
    return TensorDict(obs, batch_size=[batch])


def make_model(layouts, obs_set: str = "actor", distribution: str = "scalar std", **options) -> Any:
    torch.manual_seed(0)
    policy = options.pop("policy", {}) | SMALL
    is_actor = obs_set == "actor"
    return BodyModel(
        random_obs(),
        GROUPS,
        obs_set,
        12 if is_actor else 1,
        layout=layouts[obs_set],
        policy=policy,
        distribution_cfg=DISTRIBUTIONS[distribution] if is_actor else None,
        **options,
    )


def runner_cfg(variant: str, obs_groups: dict[str, Any], **options: Any) -> dict[str, Any]:
    model = {"class_name": rl_model.NAME, "policy": {"variant": variant, **SMALL}, "obs_normalization": True} | options
    return {
        "actor": model | {"distribution_cfg": DISTRIBUTIONS["scalar std"]},
        "critic": dict(model),
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 2, "num_mini_batches": 2, "rnd_cfg": None},
        "obs_groups": obs_groups,
        "num_steps_per_env": 4,
        "save_interval": 100,
        "upload_model": False,
    }


def weights(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


# -- in rsl_rl's own PPO -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [CARTPOLE, GO1])
@pytest.mark.parametrize("variant", ["bot-mix", "mlp"])
def test_one_iteration_of_rsl_rls_own_ppo_changes_every_weight(task, variant, tmp_path):
    from mjlab.rl import RslRlVecEnvWrapper

    env = RslRlVecEnvWrapper(make_env(task, num_envs=4))
    runner = OnPolicyRunner(env, with_layouts(runner_cfg(variant, GROUPS), env.unwrapped), device="cpu")
    models = (runner.alg.actor, runner.alg.critic)
    before = [weights(model) for model in models]
    runner.learn(1)
    for model, old in zip(models, before, strict=True):
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
        same = [name for name, parameter in model.named_parameters() if torch.equal(parameter, old[name])]
        assert same == []
        assert float(model.statistics.count) == 4 * 4
    assert isinstance(runner.alg.actor.network.net, Policy)
    assert isinstance(runner.alg.critic.network.net, Critic)
    obs = env.get_observations()
    policy = runner.alg.get_policy().policy()
    torch.testing.assert_close(policy(obs["actor"]), runner.get_inference_policy()(obs))
    policy.save(tmp_path / "policy")
    torch.testing.assert_close(Policy.load(tmp_path / "policy")(obs["actor"]), policy(obs["actor"]))


def test_mjlabs_runner_trains_exports_and_restores_it(tmp_path):
    from mjlab.rl import MjlabOnPolicyRunner, RslRlVecEnvWrapper

    env = RslRlVecEnvWrapper(make_env(CARTPOLE, num_envs=4))
    cfg = with_layouts(runner_cfg("bot-hard", {"actor": ("actor",), "critic": ("actor", "critic")}), env.unwrapped)
    runner = MjlabOnPolicyRunner(env, copy.deepcopy(cfg), device="cpu")
    runner.learn(1)
    runner.export_policy_to_onnx(str(tmp_path), "policy.onnx")
    obs = env.get_observations()
    expected = runner.get_inference_policy()(obs).detach().numpy()
    np.testing.assert_allclose(run_onnx(tmp_path / "policy.onnx", obs["actor"]), expected, atol=1e-5)
    runner.save(str(tmp_path / "model.pt"))
    other = MjlabOnPolicyRunner(env, copy.deepcopy(cfg), device="cpu")
    other.load(str(tmp_path / "model.pt"))  # the file written above
    np.testing.assert_array_equal(other.get_inference_policy()(obs).detach().numpy(), expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_mjlabs_own_configuration_needs_only_class_names(capsys):
    from dataclasses import asdict

    from mjlab.rl import MjlabOnPolicyRunner, RslRlOnPolicyRunnerCfg, RslRlPpoAlgorithmCfg, RslRlVecEnvWrapper

    cfg = RslRlOnPolicyRunnerCfg(
        actor=BodyModelCfg(
            policy=SMALL, distribution_cfg=DISTRIBUTIONS["log std"], layout_overrides={"cart_pos": "pole_1"}
        ),
        critic=BodyModelCfg(policy=SMALL | {"variant": "mlp"}),
        algorithm=RslRlPpoAlgorithmCfg(
            class_name="body_transformer.rl.rsl_rl_config:BodyPPO", num_mini_batches=2, num_learning_epochs=1
        ),
        num_steps_per_env=4,
    )
    env = RslRlVecEnvWrapper(make_env(CARTPOLE, num_envs=4))
    runner = MjlabOnPolicyRunner(env, asdict(cfg), device="cpu")
    printed = capsys.readouterr().out
    before = weights(runner.alg.actor)
    runner.learn(1)
    assert all(not torch.equal(parameter, before[name]) for name, parameter in runner.alg.actor.named_parameters())
    assert runner.alg.critic.network.net.config.variant == "mlp"
    assert runner.alg.actor.layout.obs_ids("pole_1") == [0, 1, 2, 4]
    assert runner.alg.critic.layout.obs_ids("pole_1") == [1, 2, 4]
    assert "actor:" in printed
    assert "4: cart_pos 1, pole_angle 2, pole_vel 1" in printed


def test_a_configuration_must_list_the_groups_of_each_body_model(go1):
    with pytest.raises(ValueError, match="obs_groups has no entry for 'critic'; have: 'actor'"):
        with_layouts(runner_cfg("mlp", {"actor": ["actor"]}), go1)
    cfg = runner_cfg("mlp", GROUPS)
    cfg["critic"] = {"class_name": "MLPModel", "hidden_dims": [8]}
    cfg["actor"]["layout_overrides"] = {"command": "FR_hip"}
    filled = with_layouts(cfg, go1)
    assert "layout" not in filled["critic"]
    assert "layout" not in cfg["actor"]
    assert len(Layout.from_dict(filled["actor"]["layout"]).obs_ids("FR_hip")) == 3 + 3


# -- actions and distributions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_distribution_works(layouts, name):
    model, obs = make_model(layouts, distribution=name), random_obs()
    if name == "none":
        assert model(obs, stochastic_output=True).shape == (6, 12)
        with pytest.raises(ValueError, match="this model is deterministic; distribution_cfg gives it a distribution"):
            model.get_output_log_prob(torch.zeros(6, 12))
        return
    actions = model(obs, stochastic_output=True).detach()
    assert actions.shape == model.output_mean.shape == model.output_std.shape == (6, 12)
    torch.testing.assert_close(model(obs), model.output_mean)
    params = tuple(parameter.detach() for parameter in model.output_distribution_params)
    torch.testing.assert_close(model.get_kl_divergence(params, params), torch.zeros(6))
    (model.get_output_log_prob(actions).mean() + model.output_entropy.mean()).backward()
    missing = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []
    if "std" in name:
        torch.testing.assert_close(model.output_std, torch.full((6, 12), 0.7), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shared_tokenizer", [False, True])
@pytest.mark.parametrize("variant", ["mlp", "bot-mix"])
def test_the_second_parameter_of_a_beta_starts_at_zero_with_any_head(layouts, variant, shared_tokenizer):
    policy = {"variant": variant, "shared_tokenizer": shared_tokenizer}
    model = make_model(layouts, distribution="beta", policy=policy)
    out = model.network(random_obs()["actor"])
    assert out.shape == (6, 2, 12)
    assert (out[:, 1] == 0).all()
    assert (out[:, 0] != 0).all()


@pytest.mark.parametrize("name", ["scalar std", "log std", "fixed std", "std of the state", "none"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_policy_of_a_model_gives_the_same_actions_after_a_few_updates(layouts, variant, name):
    changes = {"variant": variant, "obs_clip": 5.0, "squash": "tanh"}
    model = make_model(layouts, distribution=name, policy=changes, obs_normalization=True)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    for seed in range(3):
        obs = random_obs(seed=seed)
        model.update_normalization(obs)
        loss = (model(obs, stochastic_output=True) if name == "none" else model_loss(model, obs)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    policy, obs = model.policy(), random_obs(seed=9)
    torch.testing.assert_close(policy(obs["actor"]), model(obs))
    if name in ("scalar std", "log std", "fixed std"):
        model(obs, stochastic_output=True)
        torch.testing.assert_close(policy.distribution(obs["actor"]).stddev, model.output_std)
        assert (policy.config.std == "fixed") == (name == "fixed std")
    assert policy.tokenizer is not model.network.net.tokenizer


def model_loss(model, obs: TensorDict) -> Tensor:
    actions = model(obs, stochastic_output=True).detach()
    return model.get_output_log_prob(actions) * 0.01 + model.output_mean.mean()


def test_a_model_that_cannot_be_a_policy_is_refused(layouts):
    with pytest.raises(ValueError, match="the mean of a Gaussian; this model has a BetaDistribution"):
        make_model(layouts, distribution="beta").policy()
    with pytest.raises(ValueError, match="this model is a critic"):
        make_model(layouts, "critic").policy()


def test_the_models_are_the_packages_policy_and_critic(layouts):
    obs = random_obs()
    actor, critic = make_model(layouts), make_model(layouts, "critic")
    torch.testing.assert_close(actor(obs), actor.network.net(obs["actor"]))
    torch.testing.assert_close(critic(obs), critic.network.net(obs["critic"])[:, None])
    torch.manual_seed(0)
    plain = Policy(layouts["actor"], PolicyConfig(**SMALL))
    torch.testing.assert_close(plain(obs["actor"]), actor(obs))


# -- observations ------------------------------------------------------------------------------------------------------


def test_the_running_normalization_is_the_mean_and_deviation_of_all_observations(layouts):
    model = make_model(layouts, obs_normalization=True)
    batches = [random_obs(batch, seed=batch)["actor"] * 3 + 2 for batch in (1, 5, 17)]
    with torch.inference_mode():  # as rsl_rl collects
        for batch in batches:
            model.update_normalization(TensorDict({"actor": batch}, batch_size=[len(batch)]))
    seen = torch.cat(batches)
    expected = (seen - seen.mean(0)) / (seen.var(0, correction=0) + 1e-5).sqrt()
    latent = model.get_latent(TensorDict({"actor": seen}, batch_size=[len(seen)]))
    torch.testing.assert_close(latent, expected, atol=1e-4, rtol=1e-4)
    model(random_obs()).sum().backward()  # statistics from inference mode do not disturb training
    again = make_model(layouts, obs_normalization=True)
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(random_obs()), model(random_obs()))


def test_without_normalization_observations_are_unchanged(layouts):
    model, obs = make_model(layouts), random_obs()
    model.update_normalization(obs)
    torch.testing.assert_close(model.get_latent(obs), obs["actor"])


def test_observations_that_were_padded_for_a_recurrent_model_are_unpadded(layouts):
    from rsl_rl.utils import split_and_pad_trajectories

    model = make_model(layouts)
    obs = TensorDict({"actor": torch.randn(5, 3, 48)}, batch_size=[5, 3])  # time, environments
    dones = torch.zeros(5, 3, 1)
    dones[1, 0] = dones[3, 2] = 1
    padded, masks = split_and_pad_trajectories(obs, dones)
    expected = model(obs.flatten(0, 1)).view(5, 3, 12)
    torch.testing.assert_close(model(padded, masks=masks), expected)


def test_two_groups_are_read_one_after_the_other(go1):
    layout = infer_layout(go1, ["critic", "actor"]).layout
    obs = random_obs()
    groups = {"actor": ["critic", "actor"]}
    model = BodyModel(obs, groups, "actor", 12, layout=layout.to_dict(), policy=SMALL)
    torch.testing.assert_close(model(obs), model.network(torch.cat([obs["critic"], obs["actor"]], 1)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_dim": 11}, "the layout has 12 actions; the environment has 11"),
        ({"obs_set": "critic"}, "a critic has one output and no distribution"),
        ({"obs_groups": {"actor": ["critic"]}}, "the layout has 48 observation entries; the set 'actor' has .*72"),
        ({"precision": "fp16"}, "unknown precision 'fp16'; .* have: 'fp32', 'tf32', 'bf16'"),
        ({"policy": {"variant": "bot-hrad"}}, "policy.variant: unknown value 'bot-hrad'; did you mean 'bot-hard'"),
        ({"obs": TensorDict({"actor": torch.zeros(2, 3, 16)}, [2])}, "observation groups must be vectors"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(layouts, changes, message):
    arguments = {"obs": random_obs(), "obs_groups": {"actor": ["actor"], "critic": ["actor"]}, "obs_set": "actor"}
    arguments |= {"output_dim": 12, "layout": layouts["actor"]} | changes
    with pytest.raises(ValueError, match=message):
        BodyModel(**arguments)


# -- precision and export ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_on_the_cpu_precision_changes_nothing(layouts, precision):
    obs = random_obs()
    torch.testing.assert_close(make_model(layouts, precision=precision)(obs), make_model(layouts)(obs))


@pytest.mark.parametrize("name", ["scalar std", "std of the state", "beta", "none"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_torchscript_gives_the_same_actions(layouts, variant, name, tmp_path):
    model = trained(layouts, variant, name)
    torch.jit.script(model.as_jit().to("cpu")).save(tmp_path / "policy.pt")
    scripted = torch.jit.load(tmp_path / "policy.pt")
    scripted.reset()
    obs = random_obs()
    torch.testing.assert_close(scripted(obs["actor"]), model(obs), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("variant", "name", "exporter"),
    [
        *((variant, "scalar std", "mjlab") for variant in VARIANTS),
        ("bot-mix", "beta", "mjlab"),
        ("mlp", "beta", "mjlab"),
        ("bot-mix", "scalar std", "rsl_rl"),
    ],
)
def test_onnx_files_of_mjlabs_and_rsl_rls_exporters_give_the_same_actions(layouts, variant, name, exporter, tmp_path):
    options: dict[str, Any] = {"dynamic_axes": {}, "dynamo": False}
    if exporter == "rsl_rl":
        pytest.importorskip("onnxscript")
        options = {}
    model, file, obs = trained(layouts, variant, name), tmp_path / "policy.onnx", random_obs()
    export = model.as_onnx(verbose=False).to("cpu").eval()
    options |= {"input_names": export.input_names, "output_names": export.output_names}
    torch.onnx.export(export, export.get_dummy_inputs(), str(file), export_params=True, opset_version=18, **options)
    np.testing.assert_allclose(run_onnx(file, obs["actor"]), model(obs).detach().numpy(), atol=1e-5)


def trained(layouts, variant: str, name: str) -> Any:
    """Return a model whose normalizer and weights differ from their initial values."""
    model = make_model(layouts, distribution=name, policy={"variant": variant, "obs_clip": 5.0}, obs_normalization=True)
    model.update_normalization(random_obs(50, seed=3))
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model.eval()


def run_onnx(file, obs: Tensor) -> np.ndarray:
    """Return the actions of observations [B, O]; the exported model takes one at a time."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(["actions"], {"obs": row[None].numpy()})[0] for row in obs])
