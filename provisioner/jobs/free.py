"""How much of a server its pods leave free, by what they request of its Node. Pure.

Tenants write what their pods request, and a kubelet what its Node has: what is not readable counts as nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from provisioner.jobs.pods import CPU, Pod, is_evictable, is_gpu

MAX_QUANTITY: Final = 2.0**63
"""Kubernetes writes none larger."""

_QUANTITY: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{0,9})?)(?:[eE]([+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i))?")
_POWERS: Final = {"n": -3, "u": -2, "m": -1, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


@dataclass(frozen=True)
class PodRequests:
    """CPUs and GPUs that are set aside for pods, by name. `by_claim`: some have devices that are not among them."""

    quantities: Mapping[str, float] = field(default_factory=dict)
    by_claim: bool = False


def free_share(allocatable: Mapping[str, Any], requests: PodRequests) -> float | None:
    """Share of a Node that the pods on it leave free, from 0 to 1; None if that is not known.

    By its GPUs, whole, shared or sliced, the mean of all names that it has them under; without any by its CPUs, unless
    a pod has devices by a claim, of which the Node says nothing.
    """
    capacity = {name: read_quantity(quantity) for name, quantity in allocatable.items() if is_gpu(name)}
    capacity = {name: quantity for name, quantity in capacity.items() if quantity > 0}
    if not capacity:
        cpus = read_quantity(allocatable.get(CPU))
        if cpus <= 0 or requests.by_claim:
            return None
        capacity = {CPU: cpus}
    taken = sum(min(1.0, requests.quantities.get(name, 0.0) / quantity) for name, quantity in capacity.items())
    return 1.0 - taken / len(capacity)


def requests_on(pods: Iterable[Pod]) -> PodRequests:
    """Of all pods of a node, but those that come with it, and those that are over."""
    quantities: Counter[str] = Counter()  # Counter[str]() gives each one a dict more
    by_claim = False
    for pod in pods:
        if is_evictable(pod):
            quantities.update(requests_of(pod))
            by_claim = by_claim or bool(pod["spec"].get("resourceClaims"))
    return PodRequests(quantities, by_claim)


def requests_of(pod: Pod) -> dict[str, float]:
    """CPUs and GPUs that the scheduler sets aside for it, by name: for its containers and those that run beside them,
    or for the largest that runs before them; what is requested for the pod as a whole counts instead."""
    spec, together, before = pod["spec"], Counter[str](), Counter[str]()
    for container in spec.get("containers") or ():
        together.update(_requests(container))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            together.update(_requests(container))
        else:
            before |= Counter(_requests(container))
    return {**(together | before), **_requests(spec)}


def read_quantity(value: Any) -> float:
    """A quantity of Kubernetes, such as `4`, `500m` or `2Ki`; 0 for what is none, at most `MAX_QUANTITY`."""
    return _read(str(value)) if isinstance(value, str | int | float) else 0.0


@lru_cache(maxsize=1024)
def _read(text: str) -> float:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return 0.0
    number, exponent, suffix = found.groups()
    base = 1024.0 if suffix is not None and suffix.endswith("i") else 1000.0
    scale = 10.0 ** int(exponent) if exponent else base ** _POWERS[suffix[0]] if suffix else 1.0
    return min(MAX_QUANTITY, float(number) * scale)


def _requests(holder: Mapping[str, Any]) -> dict[str, float]:
    resources = holder.get("resources") or {}
    # The API server writes a limit without a request as a request, too.
    quantities = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: read_quantity(quantity) for name, quantity in quantities.items() if name == CPU or is_gpu(name)}
