"""DHCP as its workers count it. Every name is one of ours: what a client says of itself only picks among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final, Protocol, get_args

from prometheus_client.core import HistogramMetricFamily, Metric

from provisioner.boot.dhcp.responder.inventory import DropReason
from provisioner.boot.dhcp.responder.tally import WAIT_SECONDS, Tally
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.client import DhcpClient
from provisioner.boot.dhcp.wire.packet import Malformed
from provisioner.boot.dhcp.workers.supervisor import WorkerStates
from provisioner.cluster.series import PREFIX, by_label, counter, gauge

_TYPES: Final[Mapping[int, str]] = {
    opt.DISCOVER: "discover", opt.REQUEST: "request", opt.DECLINE: "decline", opt.RELEASE: "release",
    opt.INFORM: "inform",
}  # fmt: skip
_OTHER: Final = "other"
_CLIENTS: Final[Mapping[int, str]] = {
    DhcpClient.PLAIN: "system", DhcpClient.IPXE: "ipxe", DhcpClient.BIOS_PXE: "bios_pxe",
    DhcpClient.X64_PXE: "x86_64_pxe", DhcpClient.ARM64_PXE: "arm64_pxe", DhcpClient.BIOS_HTTP: "bios_http",
    DhcpClient.X64_HTTP: "x86_64_http", DhcpClient.ARM64_HTTP: "arm64_http", DhcpClient.UNSUPPORTED: "unsupported",
}  # fmt: skip
_ANSWERS: Final[Mapping[str, str]] = {
    "offered": "offer", "acknowledged": "ack", "offered-lent": "offer_lent", "acknowledged-lent": "ack_lent",
    "informed": "inform_ack", "refused": "nak",
}  # fmt: skip
"""By the verdict of the responder."""
_DROPS: Final = (
    *(reason.value for reason in Malformed), *get_args(DropReason), "dropped-not-synced", "dropped-for-another-server",
    "dropped-no-subnet", "dropped-unknown-relay", "dropped-wrong-subnet", "dropped-no-requested-address",
    "dropped-no-discovery-range", "dropped-discovery-range-full", "dropped-message-type",
)  # fmt: skip
_FAULTS: Final = ("send-failed", "receive-failed", "forward-failed", "sightings-dropped", "observations-dropped")
_UNSERVED: Final = ("Rack", "Server")


class CountedResponder(Protocol):
    """What is read of it (provisioner.boot.dhcp.DhcpServer)."""

    def tally(self) -> Tally: ...

    def problems(self) -> dict[str, str]: ...

    @property
    def workers(self) -> WorkerStates: ...


def dhcp_families(dhcp: CountedResponder) -> Iterable[Metric]:
    """All that is told of DHCP."""
    tally, workers = dhcp.tally(), dhcp.workers
    yield counter(
        "dhcp_messages",
        "DHCP messages that could be read, by type, whether a relay passed them on, and what sent them.",
        ("type", "relayed", "client"),
        _messages(tally),
    )
    answers = by_label({word: tally.counters[name] for name, word in _ANSWERS.items()})
    yield counter(
        "dhcp_answers", "Answers to DHCP messages; lent: to a machine that is not registered.", ("answer",), answers
    )
    drops = by_label({_word(name.removeprefix("dropped-")): tally.counters[name] for name in _DROPS})
    yield counter("dhcp_dropped", "DHCP messages that were not answered, by reason.", ("reason",), drops)
    faults = by_label({_word(name): tally.counters[name] for name in _FAULTS})
    yield counter("dhcp_faults", "What went wrong in the DHCP responder itself.", ("fault",), faults)
    words = "From the kernel's receipt to the answer; of each sixteenth batch that is read, as the longest in it."
    yield _histogram("dhcp_answer_seconds", words, WAIT_SECONDS, tally.waits, tally.waited_seconds)
    yield gauge("dhcp_workers", "Worker processes that should answer DHCP.", (), {(): workers.workers})
    yield gauge("dhcp_workers_ready", "Worker processes that do answer DHCP.", (), {(): workers.ready})
    words = "Worker processes that were started in the place of others."
    yield counter("dhcp_worker_restarts", words, (), {(): workers.restarts})
    problems = Counter(key.partition("/")[0] for key in dhcp.problems())
    unserved = by_label({kind: problems[kind] for kind in _UNSERVED})
    yield gauge("dhcp_unserved_objects", "Objects that DHCP cannot serve as they are written.", ("kind",), unserved)


def _messages(tally: Tally) -> Mapping[tuple[str, ...], float]:
    counts = Counter[tuple[str, ...]](
        dict.fromkeys(product((*_TYPES.values(), _OTHER), ("false", "true"), _CLIENTS.values()), 0)
    )
    for message_type, relayed, client, count in tally.messages():
        key = (_TYPES.get(message_type, _OTHER), "true" if relayed else "false", _CLIENTS[client])
        counts[key] += count
    return counts


def _word(name: str) -> str:
    return name.replace("-", "_")


def _histogram(name: str, words: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Metric:
    """counts: of each class, the last of which has no upper bound; total: of all values."""
    family = HistogramMetricFamily(f"{PREFIX}_{name}", words)
    buckets, so_far = [], 0
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        so_far += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), so_far))
    family.add_metric((), buckets, total)
    return family
