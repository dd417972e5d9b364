"""Sweeps the fused encoder's launch settings on a GPU: `python benchmarks/encoder_tuning.py bf16 [forward …]`."""

import concurrent.futures
import multiprocessing
import statistics
import sys
import time
from functools import partial

import torch

from body_transformer.ops.encoder_stack.fused import passes as fused
from body_transformer.ops.encoder_stack.fused import sizes

NODES, EMBED, HIDDEN, HEADS, LAYERS = 16, 64, 128, 2, 10
FORWARD = [
    (64, 128, 4, 128, 2),
    (64, 128, 4, 128, 3),
    (64, 64, 4, 128, 2),
    (128, 64, 8, 128, 2),
    (128, 128, 8, None, 2),
    (128, 128, 4, None, 2),
    (128, 128, 8, 120, 2),
    (64, 128, 4, 128, 1),
    (128, 128, 8, 128, 1),
    (128, 128, 8, 128, 2),
    (64, 128, 4, None, 1),
    (64, 64, 4, None, 1),
]
BACKWARD = [
    (64, 64, 4, 128, 2),
    (64, 128, 4, 128, 2),
    (64, 64, 4, 168, 2),
    (64, 64, 4, None, 2),
    (64, 128, 4, None, 1),
    (64, 64, 4, None, 1),
    (64, 64, 4, 168, 1),
    (128, 64, 8, None, 1),
]
FEED_FORWARD = [
    (64, 4, 64),
    (64, 4, 64, 2),
    (32, 4, 64),
    (64, 8, 128),
    (64, 8, 128, 2),
    (32, 4, 32),
    (32, 4, 32, 2),
    (16, 4, 32),
    (16, 2, 32),
]
PRODUCT = [(64, 4), (32, 4), (32, 2), (16, 2)]
SHARES = [8, 12, 16, 24, 32, 48, 64]


def problem(batch, seed=0):
    g = torch.Generator(device="cuda").manual_seed(seed)

    def r(*shape, scale=1.0):
        return torch.randn(*shape, generator=g, device="cuda") * scale

    e, f = EMBED, HIDDEN
    parameters = []
    for _ in range(LAYERS):
        parameters += [r(3 * e, e, scale=1.2 * e**-0.5), r(3 * e, scale=0.1), r(e, e, scale=e**-0.5), r(e, scale=0.1)]
        parameters += [1 + r(e, scale=0.1), r(e, scale=0.1), r(f, e, scale=e**-0.5), r(f, scale=0.1)]
        parameters += [r(e, f, scale=f**-0.5), r(e, scale=0.1), 1 + r(e, scale=0.1), r(e, scale=0.1)]
    mask = torch.eye(NODES, dtype=torch.bool)
    for node in range(1, NODES):
        parent = (node - 1) // 2
        mask[node, parent] = mask[parent, node] = True
    masked = [k % 2 == 0 for k in range(LAYERS)]
    return r(batch, NODES, e), r(batch, NODES, e), parameters, mask.cuda(), masked


def once(precision, setting, batch=64):
    """Compiles a setting, in a process of its own."""
    kernel, _ = setting
    use(precision, *setting)
    x, grad, parameters, mask, masked = problem(batch)
    options = (mask, masked, HEADS, 1e-5, precision)
    fused.forward(x, parameters, *options, False)
    _, *kept = fused.forward(x, parameters, *options, True)
    if kernel != "forward":
        fused.backward(grad, kept, x, parameters, *options)
    torch.cuda.synchronize()


def use(precision, kernel, value):
    if kernel == "shares":
        sizes.SHARES[precision] = value
    elif kernel in ("product", "feed-forward"):
        table = sizes.PRODUCT if kernel == "product" else sizes.FEED_FORWARD
        table[precision] = sizes.SumLaunch(*value)
    else:
        sizes.LAUNCH[kernel][precision] = sizes.Launch(*value)
    if kernel == "forward":
        sizes.LAUNCH["inference"][precision] = sizes.Launch(*value)


def replay_ms(function, repeats=30):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def profile(function, label):
    function()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        for _ in range(3):
            function()
        torch.cuda.synchronize()
    events = sorted(
        (e for e in prof.key_averages() if e.self_device_time_total), key=lambda e: -e.self_device_time_total
    )
    print(f"-- {label}: {sum(e.self_device_time_total for e in events) / 3e3:.3f} ms")
    for e in events[:12]:
        print(f"   {e.self_device_time_total / 3e3:7.3f} ms x{e.count // 3:<3d} {e.key[:70]}")


def reference(x, parameters, mask, masked):
    functional = torch.nn.functional
    batch, nodes, embed = x.shape
    for k in range(LAYERS):
        wi, bi, wo, bo, g1, b1, w1, c1, w2, c2, g2, b2 = parameters[12 * k : 12 * k + 12]
        q, k_, v = functional.linear(x, wi, bi).view(batch, nodes, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k_.transpose(-1, -2) * (embed // HEADS) ** -0.5
        if masked[k]:
            scores = scores.masked_fill(~mask, float("-inf"))
        a = (scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(batch, nodes, embed)
        x = functional.layer_norm(x + functional.linear(a, wo, bo), (embed,), g1, b1)
        x = functional.layer_norm(x + functional.linear(functional.linear(x, w1, c1).relu(), w2, c2), (embed,), g2, b2)
    return x


def errors(precision):
    x, grad, parameters, mask, masked = problem(1003, 5)
    double = [p.double().requires_grad_() for p in (x, *parameters)]
    exact = reference(double[0], double[1:], mask, masked)
    exact = [exact, *torch.autograd.grad(exact, double, grad.double())]

    def relative(results):
        return [((a.double().view_as(b) - b).norm() / b.norm()).item() for a, b in zip(results, exact, strict=True)]

    out, *kept = fused.forward(x, parameters, mask, masked, HEADS, 1e-5, precision, True)
    grad_x, flat = fused.backward(grad, kept, x, parameters, mask, masked, HEADS, 1e-5, precision)
    again = fused.backward(grad, kept, x, parameters, mask, masked, HEADS, 1e-5, precision)
    ours = relative([out, grad_x, *flat.split([p.numel() for p in parameters])])
    leaves = [p.clone().requires_grad_() for p in (x, *parameters)]
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
        plain = reference(leaves[0], leaves[1:], mask, masked)
    torchs = relative([plain, *torch.autograd.grad(plain, leaves, grad.to(plain.dtype))])
    torch.backends.cuda.matmul.allow_tf32 = False
    ratios = [a / b for a, b in zip(ours, torchs, strict=True)]
    worst = max(range(len(ratios)), key=lambda k: ratios[k] if (k - 2) % 12 != 1 else 0)
    print(f"errors {precision}: out {ours[0]:.2e} (torch {torchs[0]:.2e}) dx {ours[1]:.2e} ({torchs[1]:.2e})")
    print(f"worst {max(ours[2:]):.2e} ({max(torchs[2:]):.2e}); worst ratio {ratios[worst]:.2f} at {worst - 2}")
    print(f"same bits twice: {torch.equal(again[1], flat)}", flush=True)


def main(precision, settings):
    started = time.time()
    jobs = [(kernel, value) for kernel, values in settings.items() for value in values]
    with concurrent.futures.ProcessPoolExecutor(14, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {job: pool.submit(once, precision, job) for job in jobs}
        good = [job for job, future in futures.items() if future.exception() is None]
        for job, future in futures.items():
            if future.exception():
                print("failed", job, str(future.exception())[:200])
    print(f"compiled in {time.time() - started:.0f} s", flush=True)
    x, grad, parameters, mask, masked = problem(8192)
    few = x[:2048].contiguous()
    best = {}
    for kernel, value in good:
        use(precision, kernel, value)
        if kernel == "forward":
            t = replay_ms(lambda: fused.forward(x, parameters, mask, masked, HEADS, 1e-5, precision, True))
            t2 = replay_ms(lambda: fused.forward(few, parameters, mask, masked, HEADS, 1e-5, precision, False))
            print(f"{precision} forward {value}: save 8192 {t:.3f}  infer 2048 {t2:.4f}", flush=True)
        else:
            _, *kept = fused.forward(x, parameters, mask, masked, HEADS, 1e-5, precision, True)
            options = (kept, x, parameters, mask, masked, HEADS, 1e-5, precision)
            t = replay_ms(partial(fused.backward, grad, *options))
            print(f"{precision} {kernel} {value}: backward {t:.3f}", flush=True)
        best.setdefault(kernel, (t, value))
        if t < best[kernel][0]:
            best[kernel] = (t, value)
        use(precision, kernel, best[kernel][1])
    print("best", best)

    def step():
        _, *kept = fused.forward(x, parameters, mask, masked, HEADS, 1e-5, precision, True)
        return fused.backward(grad, kept, x, parameters, mask, masked, HEADS, 1e-5, precision)

    print(f"== {precision} forward + backward {replay_ms(step):.3f} ms")
    profile(step, precision)
    errors(precision)


SETTINGS = {
    "forward": FORWARD,
    "backward": BACKWARD,
    "feed-forward": FEED_FORWARD,
    "product": PRODUCT,
    "shares": SHARES,
}

if __name__ == "__main__":
    name, *kernels = sys.argv[1:] or ["bf16"]
    main(name, {kernel: SETTINGS[kernel] for kernel in kernels or SETTINGS})
