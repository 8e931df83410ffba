"""How many more jobs fail on a new image at the least, with a certainty that holds however often one looks. Pure.

A comparison that is made again after every job would, with an interval for one look, sooner or later find a difference
where there is none. Here the evidence is a ratio of likelihoods that stays small at all times at once: if the two
failure rates are the true ones, it reaches 1 / (1 - confidence) at any time in at most 1 - confidence of all rollouts
(Ville's inequality). Its numerator is the mean likelihood over Jeffreys' prior of both rates, Beta(1/2, 1/2), so that
it depends on the counts alone, and not on the order in which jobs ended or on when somebody looked.

It presumes that jobs fail independently of one another.

Sources: H. Robbins, "Statistical Methods Related to the Law of the Iterated Logarithm", Annals of Mathematical
Statistics 41 (1970) 1397, for mixtures; R. Turner and P. Grünwald, "Exact Anytime-valid Confidence Intervals for
Contingency Tables and Beyond", Statistics and Probability Letters 198 (2023) 109835, for two rates.
"""

from __future__ import annotations

import math
from typing import Final

from provisioner.api.pools.rollout_status import JobTally

_STEPS: Final = 40
"""Bisections: to 2e-12 for a difference between -1 and 1."""
_LOG_PI: Final = math.log(math.pi)
"""Beta(1/2, 1/2) is pi."""


def least_difference(old: JobTally, new: JobTally, confidence: float, *, old_at_most: float = 1.0) -> float:
    """The new failure rate less the old one is at least this, with `confidence` (from 0.5 up to, but not, 1).

    Returns: from -1 to 1. It holds at all times at once.
    old_at_most: what the old rate is presumed not to exceed, for a difference that is found without knowing it.
    """
    needed = -math.log1p(-confidence)
    low, high = -1.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if evidence_against(middle, old, new, old_at_most=old_at_most) >= needed:
            low = middle
        else:
            high = middle
    return low


def evidence_against(difference: float, old: JobTally, new: JobTally, *, old_at_most: float = 1.0) -> float:
    """Natural logarithm of the evidence that the new rate exceeds the old one by more than `difference` (-1 to 1).

    It is that against whichever pair of rates with no larger difference explains the counts best; infinite if none can.
    Of tallies that cannot be, with more failed than ended, all failed.
    """
    return _log_mixture(old) + _log_mixture(new) - _best_log_likelihood(difference, old, new, old_at_most)


def _log_mixture(tally: JobTally) -> float:
    failed, passed = _split(tally)
    return math.lgamma(failed + 0.5) + math.lgamma(passed + 0.5) - math.lgamma(failed + passed + 1) - _LOG_PI


def _best_log_likelihood(difference: float, old: JobTally, new: JobTally, old_at_most: float) -> float:
    """Of all pairs of rates of which the new one is at most the old one and `difference`."""
    old_rate = min(_rate(old, otherwise=old_at_most), old_at_most)
    new_rate = _rate(new, otherwise=0.0)
    if new_rate <= old_rate + difference:
        return _log_likelihood(old, old_rate) + _log_likelihood(new, new_rate)
    low, high = max(0.0, -difference), min(old_at_most, 1.0 - difference)
    if low > high:
        return -math.inf
    # The logarithm is concave: where it stops rising is the best pair that differs by exactly `difference`.
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _slope(old, middle) + _slope(new, middle + difference) > 0:
            low = middle
        else:
            high = middle
    return _log_likelihood(old, high) + _log_likelihood(new, min(1.0, high + difference))


def _log_likelihood(tally: JobTally, rate: float) -> float:
    failed, passed = _split(tally)
    if (failed and rate <= 0.0) or (passed and rate >= 1.0):
        return -math.inf
    return (failed * math.log(rate) if failed else 0.0) + (passed * math.log1p(-rate) if passed else 0.0)


def _slope(tally: JobTally, rate: float) -> float:
    failed, passed = _split(tally)
    rising = (failed / rate if rate > 0.0 else math.inf) if failed else 0.0
    falling = (passed / (1.0 - rate) if rate < 1.0 else math.inf) if passed else 0.0
    return rising - falling


def _rate(tally: JobTally, otherwise: float) -> float:
    failed, passed = _split(tally)
    return failed / (failed + passed) if failed + passed else otherwise


def _split(tally: JobTally) -> tuple[int, int]:
    failed = max(0, min(tally.failed, tally.ended))
    return failed, max(0, tally.ended) - failed
