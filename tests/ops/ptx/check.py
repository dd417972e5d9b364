"""Run the compiled kernels for small bodies and their source without a GPU, and compare the results.

    python -m tests.ops.ptx.check 21 13 --programs 8   # samples, nodes

The output is one JSON object: the error of each tensor, and the faults.
"""

import argparse
import json
from functools import partial
from unittest import mock

import torch

from body_transformer.ops.encoder_stack.hopper import passes, sizes

from ..encoder_cases import Case, draw_problem, errors, poisoned_memory
from ..gluon_on_cpu import on_cpu
from ..test_hopper import infer, run
from .faults import Faults
from .launch import Kernel


def check(case: Case) -> dict[str, object]:
    problem = draw_problem(case, seed=0)
    with poisoned_memory():
        with on_cpu(passes):
            expected = run(problem)
        faults = Faults()
        with on_cpu(passes, partial(Kernel, faults=faults)):
            found = run(problem)
            inferred = infer(problem)
    return {
        "errors": errors(found, expected),
        "inference": torch.equal(inferred, found["out"]),
        "faults": sorted(faults.found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("batch", type=int)
    parser.add_argument("nodes", type=int)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--pattern", default="hard", help="which layers are masked")
    parser.add_argument("--mask", default="star")
    parser.add_argument("--programs", type=int, default=sizes.PROGRAMS, help="number of simultaneous sums")
    parser.add_argument("--min-rows", type=int, default=sizes.MIN_ROWS, help="minimum number of rows per sum")
    options = parser.parse_args()
    case = Case(options.batch, options.nodes, 64, 128, 2, options.layers, options.pattern, options.mask)
    with mock.patch.multiple(sizes, PROGRAMS=options.programs, MIN_ROWS=options.min_rows):
        print(json.dumps(check(case)))


if __name__ == "__main__":
    main()
