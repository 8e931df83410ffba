"""DPUs, attachments and route reflectors, counted when Prometheus asks. No label names a tenant, server or address.

Reasons are those of conditions that our controllers write; beyond `MAX_REASONS` of them they are counted as `Other`.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from prometheus_client.core import Metric

from provisioner.api.machinery.meta import read_time
from provisioner.cluster.series import Values, counts_of, gauge
from provisioner.cluster.source import Json, Source, first_condition, spec_of

MAX_REASONS: Final = 60
DPU_STATES: Final = ("Ready", "NotReady")
NETWORK_STATES: Final = ("Confirmed", "Waiting", "Never")
"""Of a DPUNetwork: its DPU has confirmed what is wanted now; something older; nothing yet."""
REFLECTOR_STATES: Final = ("Serving", "BgpdFailed", "BgpdMissing", "AddressTwice", "Silent", "Other")
"""Silent: it is in the NetworkPool's list, and has never said anything."""
_PREFIX: Final = "Reflector."


def network_families(
    servers: Source, attachments: Source, networks: Source, pools: Source, now: datetime
) -> Iterable[Metric]:
    yield from _dpus(servers, networks)
    yield from _waiting(attachments, now)
    yield from _routes(networks, pools)


def _dpus(servers: Source, networks: Source) -> Iterable[Metric]:
    accepted = [server for server in servers.items() if spec_of(server).get("acceptance") == "Accepted"]
    cards = [server for server in accepted if spec_of(server).get("dpu")]
    states = Count("Ready" if first_condition(card, "Ready").get("status") == "True" else "NotReady" for card in cards)
    words = "Accepted DPUs by whether they are Ready Nodes; the agent of one that is not enforces what it had last."
    yield gauge("dpus", words, ("state",), counts_of(states, DPU_STATES))
    found = Count(_network_state(network) for network in networks.items())
    words = "DPUNetworks by whether their DPU has confirmed what is wanted: Confirmed, Waiting, Never."
    yield gauge("dpu_networks", words, ("state",), counts_of(found, NETWORK_STATES))


def _waiting(attachments: Source, now: datetime) -> Iterable[Metric]:
    reasons: Values = {}
    oldest: Values = {}
    for attachment in attachments.items():
        ready = first_condition(attachment, "Ready")
        reason = str(ready.get("reason") or "New")
        key = (reason if (reason,) in reasons or len(reasons) < MAX_REASONS else "Other",)
        reasons[key] = reasons.get(key, 0.0) + 1
        since = read_time(ready.get("lastTransitionTime") or attachment["metadata"].get("creationTimestamp"))
        if ready.get("status") != "True" and since is not None:
            oldest[key] = max(oldest.get(key, 0.0), (now - since).total_seconds())
    yield gauge("attachments", "VPCAttachments by the reason of condition Ready.", ("reason",), reasons)
    words = "How long the VPCAttachment has not been Ready that has waited longest."
    yield gauge("attachment_oldest_wait_seconds", words, ("reason",), oldest)


def _routes(networks: Source, pools: Source) -> Iterable[Metric]:
    exchanging = [network for network in networks.items() if spec_of(network).get("evpn")]
    said = Count(str(first_condition(network, "RoutesExchanged").get("status") or "Unknown") for network in exchanging)
    words = "DPUs whose routes go by EVPN, by condition RoutesExchanged of their DPUNetwork."
    yield gauge("dpus_exchanging", words, ("exchanged",), counts_of(said, ("True", "False", "Unknown")))
    states: Count[str] = Count()
    for pool in pools.items():
        wanted = spec_of(pool).get("routeDistribution") or {}
        for address in wanted.get("reflectors") or () if wanted.get("type") == "EVPN" else ():
            reason = str(first_condition(pool, f"{_PREFIX}{address}").get("reason") or "Silent")
            states[reason if reason in REFLECTOR_STATES else "Other"] += 1
    words = "Route reflectors that the NetworkPool names, by what they last said."
    yield gauge("reflectors", words, ("state",), counts_of(states, REFLECTOR_STATES))


def _network_state(network: Json) -> str:
    observed = (network.get("status") or {}).get("observedGeneration")
    if observed is None:
        return "Never"
    return "Confirmed" if observed == network["metadata"].get("generation") else "Waiting"
