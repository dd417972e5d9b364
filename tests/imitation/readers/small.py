"""A small layout with unused entries, and episodes for it."""

import numpy as np

from body_transformer import BodyGraph, Layout, Term

LAYOUT = Layout(
    BodyGraph.from_edges(["torso", "arm", "hand"], [("torso", "arm"), ("arm", "hand")]),
    [
        Term.root("gravity", 3),
        Term.unused("clock", 1),
        Term.bodies("touch", ["arm", "hand"], 2),
        Term.node("arm_pos", "arm", 1),
    ],
    [Term.bodies("ctrl", ["arm", "hand"], 1)],
)
USED = [0, 1, 2, 4, 5, 6, 7, 8]
LENGTHS = (5, 1, 8)


def make_episodes(extra_obs=0, seed=0):
    """Return [(obs [T + extra_obs, 9], actions [T, 2])] in single precision."""
    rng = np.random.default_rng(seed)
    return [
        (
            rng.standard_normal((length + extra_obs, 9), dtype=np.float32),
            rng.standard_normal((length, 2), dtype=np.float32),
        )
        for length in LENGTHS
    ]


def by_term(obs):
    """Return term -> its entries."""
    return {name: obs[:, where] for name, where in LAYOUT.obs_slices.items()}


def check_same(episodes, wanted):
    """Check that the episodes are these, in this order."""
    assert len(episodes) == len(wanted)
    for index, (obs, actions) in enumerate(wanted):
        steps = episodes.read(index)
        assert episodes.infos[index].num_steps == len(actions)
        assert steps.obs.dtype == steps.actions.dtype == np.float32
        np.testing.assert_array_equal(steps.obs, obs[: len(actions), USED])
        np.testing.assert_array_equal(steps.actions, actions)
