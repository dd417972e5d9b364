"""The network of the simulated robot."""

from itertools import pairwise

import pytest

from body_transformer.deploy.robots.sim_options import Channel, SimOptions


def through(count: int = 2000, **options: float) -> list[tuple[float, int]]:
    """Return (arrival, number) of datagrams that are sent every 2 ms."""
    channel: Channel[int] = Channel(SimOptions(**options), 1)
    arrived = []
    for tick in range(count + 200):
        now_s = 0.002 * tick
        if tick < count:
            channel.put(now_s, tick)
        arrived += [(now_s, number) for number in channel.take(now_s)]
    return arrived


def test_a_good_network_delivers_at_once_and_in_order():
    assert through(100) == [(0.002 * n, n) for n in range(100)]


def test_latency_delays_every_datagram_equally():
    delays = {round(at - 0.002 * n, 6) for at, n in through(latency_ms=20.0)}
    assert delays == {0.01}


def test_jitter_lets_datagrams_overtake_each_other_but_loses_none():
    arrived = through(latency_ms=20.0, jitter_ms=20.0)
    numbers = [n for _, n in arrived]
    assert sorted(numbers) == list(range(2000))
    assert any(a > b for a, b in pairwise(numbers))
    delays = [at - 0.002 * n for at, n in arrived]
    assert min(delays) >= 0.01 - 1e-9
    assert 0.025 < max(delays) <= 0.032


@pytest.mark.parametrize(
    ("options", "share"),
    [({"loss_percent": 5.0}, 0.95), ({"loss_percent": 100.0}, 0), ({"duplicate_percent": 20.0}, 1.2)],
)
def test_loss_and_duplicates_change_the_number_of_datagrams_by_their_share(options, share):
    assert len(through(10000, **options)) / 10000 == pytest.approx(share, abs=0.02 if share > 1 else 0.01 * share)


def test_the_same_seed_repeats_the_network():
    bad = {"latency_ms": 20.0, "jitter_ms": 10.0, "loss_percent": 10.0, "duplicate_percent": 10.0}
    assert through(seed=3, **bad) == through(seed=3, **bad)
    assert through(seed=3, **bad) != through(seed=4, **bad)


def test_a_cleared_channel_delivers_nothing():
    channel: Channel[int] = Channel(SimOptions(latency_ms=2000.0), 1)
    channel.put(0.0, 1)
    channel.clear()
    assert channel.take(10.0) == []
