"""The demonstrations that a configuration asks for."""

from collections.abc import Mapping
from dataclasses import replace

from ..body.layout import Layout
from .config import ImitationConfig
from .episodes import Episodes
from .sources import open_episodes, reader_options
from .tasks import task_options

WORDS = {"true": True, "false": False}
"""Options may come from a command line, as text."""
SPLITTING = ("train_clips", "validation_clips", "num_clips", "clip_seed")
"""Options that say which motions are for training: reader and task must mean the same, or what is called unseen in the
evaluation was trained on."""


def demonstrations(config: ImitationConfig, layout: Layout, seed: int) -> Episodes:
    """Those of the training split; `num_demos` of them, if so many are asked for, drawn by the seed."""
    options = {name: WORDS.get(value, value) for name, value in config.options.items()}
    episodes = open_episodes(config.reader, config.data, layout, **options).split("train")
    return episodes if config.num_demos is None else episodes.draw(config.num_demos, seed)


def agreed(config: ImitationConfig) -> ImitationConfig:
    """The same, where options that both reader and task know are given to both, whichever of them got them."""
    both = [name for name in SPLITTING if name in reader_options(config.reader) and name in task_options(config.task)]
    for name in both:
        given = {options[name] for options in (config.options, config.task_options) if name in options}
        if len(given) > 1:
            raise ValueError(
                f"reader and task must split the data alike: {name} is {config.options[name]!r} in options and "
                f"{config.task_options[name]!r} in task_options; give it once"
            )
    said = {name: value for options in (config.task_options, config.options) for name, value in options.items()}
    shared: Mapping[str, str] = {name: said[name] for name in both if name in said}
    return replace(config, options={**config.options, **shared}, task_options={**config.task_options, **shared})
