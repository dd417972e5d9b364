"""The demonstrations that a configuration asks for."""

from ..body.layout import Layout
from .config import ImitationConfig
from .episodes import Episodes
from .sources import open_episodes


def demonstrations(config: ImitationConfig, layout: Layout, seed: int) -> Episodes:
    """Those of the training split; `num_demos` of them, if so many are asked for, drawn by the seed."""
    episodes = open_episodes(config.reader, config.data, layout, **config.options).split("train")
    return episodes if config.num_demos is None else episodes.draw(config.num_demos, seed)
