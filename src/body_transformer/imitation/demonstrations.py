"""The demonstrations that a configuration asks for."""

from ..body.layout import Layout
from .config import ImitationConfig
from .episodes import Episodes
from .sources import open_episodes

WORDS = {"true": True, "false": False}
"""Options may come from a command line, as text."""


def demonstrations(config: ImitationConfig, layout: Layout, seed: int) -> Episodes:
    """Those of the training split; `num_demos` of them, if so many are asked for, drawn by the seed."""
    options = {name: WORDS.get(value, value) for name, value in config.options.items()}
    episodes = open_episodes(config.reader, config.data, layout, **options).split("train")
    return episodes if config.num_demos is None else episodes.draw(config.num_demos, seed)
