"""Profile the kernels of a PPO update on a GPU.

    python benchmarks/ppo_kernels.py

An update is the gradients and Adam steps of actor and critic for one minibatch of humanoid-mod, replayed as in
training. PyTorch's profiler gives microseconds and launches of each kernel; the longest comes first.
"""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from body_transformer.bench.ppo import config_of, iterate, make_collector

TASK, VARIANTS, NUM_UPDATES, NUM_SHOWN = "humanoid-mod", ("mlp", "bot-mix"), 5, 16


def kernel_times(step: Callable[[], object], repeats: int) -> list[tuple[str, float, float]]:
    """Profile a warm step on a GPU; return (kernel, microseconds, launches) per step, the longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(repeats):
            step()
        torch.cuda.synchronize()
    kernels = sorted(profiled.key_averages(), key=lambda kernel: -kernel.self_device_time_total)
    return [(one.key, one.self_device_time_total / repeats, one.count / repeats) for one in kernels]


def main() -> None:
    for variant in VARIANTS:
        collector = make_collector(TASK, variant, config_of(TASK), "cuda:0")
        ppo = collector.ppo
        for _ in range(4):
            iterate(collector)
        collector.collect()
        collector.compute_returns()
        batch = [tensor.clone() for tensor in next(iter(ppo.minibatches()))]
        ppo._train_step(*batch)
        kernels = kernel_times(lambda ppo=ppo, batch=batch: ppo._train_step(*batch), NUM_UPDATES)
        print(f"{variant}: {sum(us for _, us, _ in kernels):.0f} us, {sum(num for *_, num in kernels):.0f} launches")
        for name, us, launches in kernels[:NUM_SHOWN]:
            print(f"  {us:8.1f} us, {launches:3.0f} x {name[:90]}")
        collector.env.close()


if __name__ == "__main__":
    main()
