"""The interval for a single look, to compare with: R. Newcombe, Statistics in Medicine 17 (1998) 873, method 10."""

from __future__ import annotations

import math
from statistics import NormalDist

from provisioner.api.pools.rollout_status import JobTally


def newcombe(old: JobTally, new: JobTally, confidence: float) -> tuple[float, float]:
    """Two-sided interval of the new rate less the old one, from two Wilson intervals."""
    (low_old, high_old), (low_new, high_new) = _wilson(old, confidence), _wilson(new, confidence)
    rate_old, rate_new = old.failed / old.ended, new.failed / new.ended
    difference = rate_new - rate_old
    return (
        difference - math.hypot(rate_new - low_new, high_old - rate_old),
        difference + math.hypot(high_new - rate_new, rate_old - low_old),
    )


def _wilson(tally: JobTally, confidence: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, n = tally.failed / tally.ended, tally.ended
    centre, half = rate + z * z / 2 / n, z * math.sqrt(rate * (1 - rate) / n + (z / 2 / n) ** 2)
    return (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
