"""The ground of humanoid-hill, and what happens at its end."""

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.humanoid import hill


def tile(ground: np.ndarray, i: int, j: int) -> np.ndarray:
    """[80, 80]"""
    return ground[200 + 80 * i : 280 + 80 * i, 200 + 80 * j : 280 + 80 * j]


def test_every_tile_has_whole_waves_of_one_amplitude_along_x_and_y():
    ground = hill.heights(seed=0)
    assert ground.shape == (1201, 2001)  # 120 x 200 m
    counts, amplitudes = [], []
    for i, j in np.ndindex(10, 20):
        piece = tile(ground, i, j)
        phase = 2 * np.pi * np.outer(np.arange(1, 11), np.arange(80)) / 80
        sines, cosines = np.sin(phase) @ piece.mean(1) / 40, np.cos(phase) @ piece.mean(0) / 40
        n = int(sines.argmax())
        assert cosines.argmax() == n
        assert cosines[n] == pytest.approx(sines[n], abs=2e-3)  # heights are whole steps of 5 mm
        waves = sines[n] * np.sin(phase[n])[:, None] + cosines[n] * np.cos(phase[n])[None, :]
        assert np.abs(piece - waves).max() < 0.006
        counts.append(n + 1)
        amplitudes.append(2 * sines[n])
    assert set(counts) == set(range(1, 11))
    assert 0.008 < min(amplitudes) < 0.03
    assert 0.13 < max(amplitudes) < 0.152


def test_the_border_is_flat_and_heights_are_steps_of_5_mm():
    ground = hill.heights(seed=0)
    border = ground.copy()
    border[200:1000, 200:1800] = 0
    assert not border.any()
    np.testing.assert_allclose(ground / 0.005, np.round(ground / 0.005), atol=1e-9)


def test_another_seed_has_other_waves():
    assert np.array_equal(hill.heights(1), hill.heights(1))
    assert not np.array_equal(hill.heights(1), hill.heights(2))


def test_robots_start_on_all_tiles_above_their_middle():
    ground = hill.heights(0)
    places = hill.place(np.random.default_rng(0), 4000, seed=0)
    tiles = np.floor(places[:, :2] / 8 + [0, 10]).astype(int)
    assert len({tuple(t) for t in tiles}) == 200
    middle = (tiles + 0.5) * 8 - [0, 80]
    assert np.abs(places[:, :2] - middle).max() <= 0.5
    for (i, j), (_, _, z) in zip(tiles[:200], places[:200], strict=True):
        assert z == pytest.approx(1.34 + tile(ground, i, j)[30:51, 30:51].max())


def test_progress_does_not_jump_when_an_episode_begins(env):
    made = env("humanoid-hill")
    for _ in range(3):
        made.episode_length_buf[:] = 999
        assert made.step(torch.zeros(8, 21))[3].all()
        _, reward, died, *_ = made.step(torch.zeros(8, 21))
        assert ((reward - 2.6).abs() < 1.5)[~died].all()
