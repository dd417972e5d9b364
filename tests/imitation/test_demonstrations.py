"""Which demonstrations are trained on."""

import pytest

from body_transformer.imitation.config import ImitationConfig
from body_transformer.imitation.demonstrations import share_split_options


def config(options: dict[str, str], task_options: dict[str, str], reader: str = "mocapact") -> ImitationConfig:
    return ImitationConfig("mocap", reader, options=options, task_options=task_options, num_epochs=1)


@pytest.mark.parametrize("given", [({"train_clips": "a.txt"}, {}), ({}, {"train_clips": "a.txt"})])
def test_a_split_that_is_given_once_holds_for_reader_and_task(given):
    found = share_split_options(config(*given))
    assert found.options["train_clips"] == found.task_options["train_clips"] == "a.txt"


def test_reader_and_task_cannot_split_the_data_differently():
    with pytest.raises(ValueError, match="must split the data alike: train_clips is 'a' in options and 'b'"):
        share_split_options(config({"train_clips": "a"}, {"train_clips": "b"}))


def test_what_is_not_about_the_split_stays_where_it_was_given():
    found = share_split_options(config({"allow_missing": "true"}, {"clips": "c.hdf5"}))
    assert found.options == {"allow_missing": "true"}
    assert found.task_options == {"clips": "c.hdf5"}


def test_a_reader_that_knows_no_clips_gets_none():
    assert share_split_options(config({}, {"train_clips": "a"}, reader="npz")).options == {}
