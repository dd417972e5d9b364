"""First frames of training episodes."""

import pytest
import torch

from body_transformer.rl.mocap.motions import ClipFile, Motions
from body_transformer.rl.mocap.sampling import BIN_FRAMES, REWIND_FRAMES, FrameSampler, SamplingSettings
from body_transformer.rl.mocap.servo import Servo

from .conftest import LENGTHS


@pytest.fixture(scope="module")
def clips(options):
    return ClipFile.open(options["clips"], options["train_clips"], options["validation_clips"])


@pytest.fixture(scope="module")
def motions(clips):
    return Motions.read(clips, Servo.of_walker("cpu", torch.float32).file_order, "cpu", torch.float32)


@pytest.fixture
def sampler(motions, clips):
    def make(**settings):
        numbers = [motions.index[name] for name, split in clips.splits.items() if split == "train"]
        return FrameSampler(motions, torch.tensor(numbers), SamplingSettings(**{"clip_starts": 0.0, **settings}))

    return make


def test_bins_cover_the_training_clips_and_no_other(sampler, motions, clips):
    made = sampler(uniform=1.0)
    starts = torch.cat([torch.arange(first, first + size) for first, size in zip(made.first, made.size, strict=True)])
    assert len(starts) == len(starts.unique())
    assert {clips.splits[motions.names[clip]] for clip in motions.clip[starts].tolist()} == {"train"}
    for name, length in LENGTHS.items():
        own = starts[motions.clip[starts] == motions.index[name]] - motions.start[motions.index[name]]
        expected = range(length - 15) if clips.splits[name] == "train" else range(0)
        assert own.tolist() == list(expected), "ten steps and five frames of reference must be left"
    assert torch.equal(made.bin[starts], torch.arange(len(made.size)).repeat_interleave(made.size))


def test_uniform_draws_have_equal_frequencies(sampler, motions):
    made = sampler(uniform=1.0)
    frames = made.draw(40_000)
    counts = torch.bincount(frames, minlength=motions.num_frames).double()
    expected = 40_000 / int(made.size.sum())
    assert counts[counts > 0].mean().item() == pytest.approx(expected)
    assert ((counts[counts > 0] - expected).abs() < 6 * expected**0.5).all()


def test_seconds_before_failures_are_drawn_more_often(sampler, motions):
    made = sampler(uniform=0.2)
    clip = motions.index["CMU_900_04"]
    frame = motions.start[clip] + 3 * BIN_FRAMES + 5
    before = made.probabilities()
    for _ in range(500):
        made.note(frame.repeat(4), torch.tensor([True, False, False, True]))
    after = made.probabilities()
    assert after.sum().item() == pytest.approx(1.0)
    ratios, number = after / before, int(made.bin[frame])
    assert ratios[number] > ratios[number - 1] > ratios[number - 2] > ratios[number + 1]
    assert ratios[number] > 2
    assert (after >= 0.2 * made.size / made.size.sum()).all(), "the uniform share remains"


def test_the_failure_rate_of_a_second_is_capped(motions, sampler):
    """With few seconds, one that always fails is itself a large part of the mean."""
    shares = []
    for cap in (1.0, 1000.0):
        made = sampler(uniform=0.0, cap=cap)
        number = int(made.bin[motions.start[motions.index["CMU_900_04"]]])
        made.visits.fill_(1e4)
        made.failures.fill_(1e2)
        made.failures[number] = 1e4
        shares.append((made.probabilities() / made.size * made.size.sum())[number].item())
    assert 3 < shares[0] < 0.7 * shares[1]


def test_old_failures_are_forgotten(sampler, motions):
    made = sampler()
    frame = motions.start[:1].repeat(4)
    made.note(frame, torch.ones(4, dtype=torch.bool))
    noted = made.failures[made.bin[frame[0]]].clone()
    for _ in range(1000):
        made.note(motions.start[1:2].repeat(4), torch.zeros(4, dtype=torch.bool))
    assert made.failures[made.bin[frame[0]]].item() == pytest.approx(noted.item() * 0.999**1000, rel=1e-3)


def test_the_share_of_clip_starts_is_that_of_the_settings(sampler, motions):
    made = sampler(clip_starts=0.5, uniform=1.0)
    frames = made.draw(20_000)
    at_start = (frames == motions.start[motions.clip[frames]]).double().mean()
    assert at_start.item() == pytest.approx(0.5, abs=0.03)


def test_after_a_failure_an_episode_begins_one_to_two_seconds_before(sampler, motions):
    made = sampler(rewind=1.0)
    clip = motions.index["CMU_900_04"]
    frames = motions.start[clip] + torch.full((5000,), 150)
    back = frames - made.draw_after(frames, torch.ones(5000, dtype=torch.bool))
    assert (int(back.min()), int(back.max())) == REWIND_FRAMES
    early = motions.start[clip] + torch.full((50,), 10)
    assert torch.equal(made.draw_after(early, torch.ones(50, dtype=torch.bool)), motions.start[clip].repeat(50))
    others = made.draw_after(frames, torch.zeros(5000, dtype=torch.bool))
    assert len(others.unique()) > 100, "episodes that did not fail are followed by any others"


def test_the_state_is_restored_and_that_of_other_clips_is_refused(sampler, motions, clips):
    made, other = sampler(), sampler()
    made.note(motions.start[:1], torch.tensor([True]))
    state = {name: tensor.clone() for name, tensor in made.state().items()}
    other.restore(state)
    assert torch.equal(other.probabilities(), made.probabilities())
    fewer = FrameSampler(motions, torch.tensor([0]), SamplingSettings())
    with pytest.raises(ValueError, match="visits belong to other clips: it has 12 seconds of training clips, this"):
        fewer.restore(state)
