"""DPUs, attachments and route reflectors, counted when Prometheus asks. No label names a tenant, server or address.

Reasons are those of conditions that our controllers write; beyond `MAX_REASONS` of them they are counted as `Other`.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from provisioner.api.machinery.meta import read_time
from provisioner.cluster.series import gauge
from provisioner.cluster.source import Source, conditions_of

MAX_REASONS: Final = 60
DPU_STATES: Final = ("Ready", "NotReady")
NETWORK_STATES: Final = ("Confirmed", "Waiting", "Never")
"""Of a DPUNetwork: its DPU has confirmed what is wanted now; something older; nothing yet."""
REFLECTOR_STATES: Final = ("Serving", "BgpdFailed", "BgpdMissing", "AddressTwice", "Silent", "Other")
"""Silent: it is in the NetworkPool's list, and has never said anything."""
_PREFIX: Final = "Reflector."

Json = Mapping[str, Any]
Values = dict[tuple[str, ...], float]


class NetworkCollector(Collector):
    def __init__(
        self, servers: Source, attachments: Source, networks: Source, pools: Source, now: Callable[[], datetime]
    ) -> None:
        self._servers = servers
        self._attachments = attachments
        self._networks = networks
        self._pools = pools
        self._now = now

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        yield from self._dpus()
        yield from self._waiting()
        yield from self._routes()

    def _dpus(self) -> Iterable[Metric]:
        cards = [server for server in self._servers.items() if _is_accepted_card(server.get("spec") or {})]
        states = Count("Ready" if _condition(card, "Ready").get("status") == "True" else "NotReady" for card in cards)
        words = "Accepted DPUs by whether they are Ready Nodes; the agent of one that is not enforces what it had last."
        yield gauge("dpus", words, ("state",), {(state,): states[state] for state in DPU_STATES})
        found = Count(_network_state(network) for network in self._networks.items())
        words = "DPUNetworks by whether their DPU has confirmed what is wanted: Confirmed, Waiting, Never."
        yield gauge("dpu_networks", words, ("state",), {(state,): found[state] for state in NETWORK_STATES})

    def _waiting(self) -> Iterable[Metric]:
        reasons: Values = {}
        oldest: Values = {}
        for attachment in self._attachments.items():
            ready = _condition(attachment, "Ready")
            reason = str(ready.get("reason") or "New")
            key = (reason if (reason,) in reasons or len(reasons) < MAX_REASONS else "Other",)
            reasons[key] = reasons.get(key, 0.0) + 1
            since = read_time(ready.get("lastTransitionTime") or attachment["metadata"].get("creationTimestamp"))
            if ready.get("status") != "True" and since is not None:
                oldest[key] = max(oldest.get(key, 0.0), (self._now() - since).total_seconds())
        yield gauge("attachments", "VPCAttachments by the reason of condition Ready.", ("reason",), reasons)
        words = "How long the VPCAttachment has not been Ready that has waited longest."
        yield gauge("attachment_oldest_wait_seconds", words, ("reason",), oldest)

    def _routes(self) -> Iterable[Metric]:
        exchanging = [network for network in self._networks.items() if (network.get("spec") or {}).get("evpn")]
        said = Count(str(_condition(network, "RoutesExchanged").get("status") or "Unknown") for network in exchanging)
        words = "DPUs whose routes go by EVPN, by condition RoutesExchanged of their DPUNetwork."
        yield gauge("dpus_exchanging", words, ("exchanged",), {(s,): said[s] for s in ("True", "False", "Unknown")})
        states: Count[str] = Count()
        for pool in self._pools.items():
            wanted = (pool.get("spec") or {}).get("routeDistribution") or {}
            for address in wanted.get("reflectors") or () if wanted.get("type") == "EVPN" else ():
                reason = str(_condition(pool, f"{_PREFIX}{address}").get("reason") or "Silent")
                states[reason if reason in REFLECTOR_STATES else "Other"] += 1
        words = "Route reflectors that the NetworkPool names, by what they last said."
        yield gauge("reflectors", words, ("state",), {(state,): states[state] for state in REFLECTOR_STATES})


def _is_accepted_card(spec: Json) -> bool:
    return bool(spec.get("dpu")) and spec.get("acceptance") == "Accepted"


def _condition(body: Json, type_: str) -> Json:
    return next(iter(conditions_of(body, type_)), {})


def _network_state(network: Json) -> str:
    observed = (network.get("status") or {}).get("observedGeneration")
    if observed is None:
        return "Never"
    return "Confirmed" if observed == network["metadata"].get("generation") else "Waiting"
