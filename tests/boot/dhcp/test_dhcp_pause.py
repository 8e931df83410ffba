"""When a worker lets packets gather: the decision alone, and with exchanges on a simulated clock."""

from __future__ import annotations

import heapq
from itertools import chain, pairwise
from statistics import mean
from typing import NamedTuple

import pytest

from provisioner.boot.dhcp.workers.pause import LONGEST_SECONDS, Pauses, choose_interval_seconds

ANSWER_SECONDS = 20e-6
ROUND_TRIP_SECONDS = 100e-6
SMALLEST_QUEUE = 425_984 // 4_352
"""Packets, where nobody may have more than net.core.rmem_max."""


@pytest.mark.parametrize(
    ("packets_per_second", "milliseconds"),
    [(0, 0), (1, 0), (740, 0), (750, 1.35), (1_000, 1.8), (2_000, 3.6), (2_300, 4), (16_000, 4), (32_000, 2)],
)
def test_batches_are_further_apart_the_more_packets_come_until_enough_gather(
    packets_per_second: float, milliseconds: float
) -> None:
    assert choose_interval_seconds(packets_per_second) == pytest.approx(milliseconds / 1000)


class Batch(NamedTuple):
    """How long each of its packets waited for its answer, and the pause after it."""

    waits: list[float]
    pause: float


def serve(exchanges_per_second: int, pauses: Pauses, begin: float = 0.0, most: int = 10_000) -> list[Batch]:
    """Half a second of DISCOVERs that come evenly; a REQUEST follows each OFFER. A batch has `most` packets at most."""
    packets = [(begin + n / exchanges_per_second, True) for n in range(exchanges_per_second // 2)]
    now, batches = begin, []
    while packets:
        now = max(now, packets[0][0])
        batch = []
        while packets and packets[0][0] <= now and len(batch) < most:
            batch.append(heapq.heappop(packets))
        now += len(batch) * ANSWER_SECONDS
        for _, discover in batch:
            if discover:
                heapq.heappush(packets, (now + ROUND_TRIP_SECONDS, False))
        pause = pauses.after(len(batch), now, emptied=len(batch) < most)
        batches.append(Batch([now - came for came, _ in batch], pause))
        now += pause
    return batches


def test_where_few_exchanges_begin_no_packet_waits_for_others() -> None:
    assert {len(batch.waits) for batch in serve(300, Pauses(0.0))} == {1}
    assert {batch.pause for batch in serve(300, Pauses(0.0))} == {0}


def test_at_500_exchanges_a_second_an_answer_takes_less_than_two_milliseconds_on_average() -> None:
    batches = serve(500, Pauses(0.0))
    assert mean(chain.from_iterable(batch.waits for batch in batches)) < 0.002
    assert mean(len(batch.waits) for batch in batches) > 1.5


@pytest.mark.parametrize("exchanges_per_second", [2_000, 4_000, 8_000, 14_000, 20_000])
def test_under_load_packets_gather_and_the_smallest_queue_holds_them(exchanges_per_second: int) -> None:
    batches = serve(exchanges_per_second, Pauses(0.0))
    gathered = [len(batch.waits) for before, batch in pairwise(batches[len(batches) // 2 : -1]) if before.pause]
    assert len(gathered) > 50
    assert mean(gathered) > 14
    assert max(gathered) < SMALLEST_QUEUE
    assert max(batch.pause for batch in batches) <= LONGEST_SECONDS


def test_a_queue_that_was_not_emptied_does_not_wait() -> None:
    assert {batch.pause for batch in serve(14_000, Pauses(0.0), most=32) if len(batch.waits) == 32} == {0}


def test_without_packets_there_is_no_pause() -> None:
    pauses = Pauses(0.0)
    pauses.after(480, 0.030, emptied=True)
    assert pauses.after(16, 0.031, emptied=True) == pytest.approx(0.003)
    assert pauses.after(0, 0.034, emptied=True) == 0


def test_after_a_storm_a_packet_that_comes_alone_ends_the_pauses() -> None:
    pauses = Pauses(0.0)
    assert serve(8_000, pauses)[-2].pause > 0
    assert pauses.after(1, 2.0, emptied=True) == 0
    assert {batch.pause for batch in serve(300, pauses, begin=2.0)} == {0}
