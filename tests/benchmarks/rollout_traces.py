"""Made-up traces of jobs for `rollout_bench`, each the same for the same seed."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Final

from provisioner.rollout.simulate.setup import DAY
from provisioner.rollout.simulate.trace import TraceJob, read_trace

MIXED_DAYS: Final = 125
"""Length of the mixed trace: its last rollout begins on day 60, and is given up 60 days later."""
ONE_GPU_DAYS: Final = 149
SUBMITTED_DAYS: Final = 33
"""Jobs of the one-GPU trace run in the last so many days. Those that run for longer began before, and end with it."""
GPUS: Final = {1: 6988, 2: 16, 4: 15, 8: 44}
"""How many jobs of the one-GPU trace ask for so many GPUs."""
QUANTILES: Final = (
    (0.0, 1.0),
    (0.01, 10.0),
    (0.10, 56.0),
    (0.25, 135.0),
    (0.50, 492.0),
    (0.75, 1914.0),
    (0.90, 6131.0),
    (0.99, 31 * 3600.0),
    (0.999, 100 * DAY),
    (1.0, 145 * DAY),
)
"""Of the seconds for which jobs of the one-GPU trace run; between two of them the logarithm is linear."""


def make_trace(name: str, seed: int) -> list[TraceJob]:
    """`mixed`, `one-gpu`, or the jobs of a CSV file, which are the same for each seed."""
    if name == "mixed":
        return make_mixed_trace(seed)
    return make_one_gpu_trace(seed) if name == "one-gpu" else read_trace(Path(name))


def make_mixed_trace(seed: int, jobs: int = 12_000) -> list[TraceJob]:
    """Most jobs are short and on one GPU, one in ten on one or two whole servers, few very long."""
    chance = random.Random(seed)
    made = [
        TraceJob(
            chance.uniform(0, MIXED_DAYS * DAY),
            min(chance.lognormvariate(8.0, 2.2), 30 * DAY),
            chance.choices((1, 2, 4, 8, 16), (70, 10, 9, 9, 2))[0],
        )
        for _ in range(jobs)
    ]
    return sorted(made, key=lambda job: job.submitted)


def make_one_gpu_trace(seed: int) -> list[TraceJob]:
    """Of 7,063 jobs 99 % ask for one GPU and 44 for a whole server; the median runs for 8 minutes, some for months.

    Source: counts and quantiles of Alibaba's cluster-trace-gpu-v2023 (`openb_pod_list_default`), of the pods that ended
    and had a GPU or a part of one.
    """
    chance = random.Random(seed)
    sizes = [gpus for gpus, count in GPUS.items() for _ in range(count)]
    chance.shuffle(sizes)
    made = []
    for number, gpus in enumerate(sizes):
        duration = _duration((number + chance.random()) / len(sizes))
        ends_before = chance.uniform(0, SUBMITTED_DAYS * DAY)
        made.append(TraceJob(ONE_GPU_DAYS * DAY - max(duration, ends_before), duration, gpus))
    return sorted(made, key=lambda job: job.submitted)


def _duration(share: float) -> float:
    """Seconds for which `share` of the jobs run at most."""
    (low, least), (high, most) = next(pair for pair in itertools.pairwise(QUANTILES) if share <= pair[1][0])
    return least * math.exp((share - low) / (high - low) * math.log(most / least))
