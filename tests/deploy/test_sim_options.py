"""The simulated robot's bad network."""

from itertools import pairwise

import numpy as np

from body_transformer.deploy.robots.sim_options import Channel, Network


def through(network: Network, count: int = 2000, seed: int = 0) -> list[tuple[float, int]]:
    """(arrival, number) of datagrams sent every 2 ms."""
    channel: Channel[int] = Channel(network, np.random.default_rng(seed))
    arrived = []
    for tick in range(count + 200):
        now_s = 0.002 * tick
        if tick < count:
            channel.put(now_s, tick)
        arrived += [(now_s, number) for number in channel.take(now_s)]
    return arrived


def test_a_good_network_delivers_at_once_and_in_order():
    assert through(Network(), 100) == [(0.002 * n, n) for n in range(100)]


def test_latency_delays_every_datagram_alike():
    delays = {round(at - 0.002 * n, 6) for at, n in through(Network(delay_s=0.01))}
    assert delays == {0.01}


def test_jitter_lets_datagrams_overtake_each_other_but_loses_none():
    arrived = through(Network(delay_s=0.01, jitter_s=0.02))
    numbers = [n for _, n in arrived]
    assert sorted(numbers) == list(range(2000))
    assert any(a > b for a, b in pairwise(numbers))
    delays = [at - 0.002 * n for at, n in arrived]
    assert min(delays) >= 0.01 - 1e-9
    assert 0.025 < max(delays) <= 0.032


def test_loss_takes_its_share():
    kept = len(through(Network(loss=0.05), 10000)) / 10000
    assert abs(kept - 0.95) < 0.01


def test_everything_lost_is_nothing_delivered():
    assert through(Network(loss=1.0)) == []


def test_duplicates_arrive_twice():
    assert abs(len(through(Network(duplicate=0.2), 10000)) / 10000 - 1.2) < 0.02


def test_the_seed_repeats_the_network():
    bad = Network(0.01, 0.01, 0.1, 0.1)
    assert through(bad, seed=3) == through(bad, seed=3)
    assert through(bad, seed=3) != through(bad, seed=4)


def test_a_cleared_channel_delivers_nothing():
    channel: Channel[int] = Channel(Network(delay_s=1.0), np.random.default_rng(0))
    channel.put(0.0, 1)
    channel.clear()
    assert channel.take(10.0) == []
