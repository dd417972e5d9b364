"""Profile the kernels of a PPO update on a GPU.

    python benchmarks/ppo_kernels.py

One update is a minibatch of humanoid-mod, actor and critic, gradients and Adam, replayed as in training. PyTorch's
profiler gives microseconds and launches of each kernel; the longest comes first.
"""

import torch
from torch.profiler import ProfilerActivity, profile

from body_transformer.bench.ppo import PpoJob, iterate, make_collector

VARIANTS, NUM_UPDATES, NUM_SHOWN = ("mlp", "bot-mix"), 5, 16


def main() -> None:
    for variant in VARIANTS:
        collector = make_collector(
            PpoJob(device="cuda", task="humanoid-mod", variants=[variant], num_envs=[], rounds=1), variant
        )
        ppo = collector.ppo
        for _ in range(4):
            iterate(collector, "cuda")
        collector.collect()
        collector.compute_returns()
        batch = [tensor.clone() for tensor in next(iter(ppo.minibatches()))]
        ppo._train_step(*batch)
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for _ in range(NUM_UPDATES):
                ppo._train_step(*batch)
            torch.cuda.synchronize()
        kernels = sorted(profiled.key_averages(), key=lambda kernel: -kernel.device_time_total)
        total = sum(kernel.device_time_total for kernel in kernels) / NUM_UPDATES
        print(f"{variant}: {total:.0f} us, {sum(kernel.count for kernel in kernels) / NUM_UPDATES:.0f} launches")
        for kernel in kernels[:NUM_SHOWN]:
            spent, count = kernel.device_time_total / NUM_UPDATES, kernel.count / NUM_UPDATES
            print(f"  {spent:8.1f} us, {count:3.0f} x {kernel.key[:90]}")
        collector.env.close()


if __name__ == "__main__":
    main()
