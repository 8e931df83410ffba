"""PodDisruptionBudgets: which one stands in the way of an eviction, and what would help. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.api.machinery.wording import quantity
from provisioner.cluster.source import is_true_in
from provisioner.cluster.trim import IDENTITY, MOST_ENTRIES, picked
from provisioner.jobs.pods import Pod, labels_of
from provisioner.jobs.selectors import Selector, read_selector


@dataclass(frozen=True)
class DisruptionBudget:
    """A PodDisruptionBudget as its controller saw it last. `current`: that was in its present form."""

    namespace: str
    name: str
    selector: Selector | None
    allowed: int
    healthy: int
    desired_healthy: int
    current: bool
    spends_on_unhealthy: bool
    """Whether pods that are not Ready count, too, while too few are healthy (the default), or never (AlwaysAllow)."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def covers(self, pod: Pod) -> bool:
        return (
            self.selector is not None
            and pod["metadata"]["namespace"] == self.namespace
            and self.selector.matches(labels_of(pod))
        )

    def is_spent_on(self, pod: Pod) -> bool:
        """Whether the eviction of `pod` takes one of the allowed disruptions."""
        if (pod.get("status") or {}).get("phase") == "Pending":
            return False
        if is_true_in(pod, "Ready"):
            return True
        has_enough = self.healthy >= self.desired_healthy > 0
        return self.spends_on_unhealthy and not has_enough

    def explain(self) -> str:
        """Why it allows too little, and what helps."""
        if not self.current:
            return (
                f"PodDisruptionBudget {self.key} was not counted yet in its present form: wait for the disruption "
                "controller of kube-controller-manager, or see whether it runs"
            )
        allowed = quantity(self.allowed, "disruption") if self.allowed else "no disruption"
        healthy = quantity(self.healthy, "pod is healthy", "pods are healthy")
        return (
            f"PodDisruptionBudget {self.key} allows {allowed} now ({healthy}, "
            f"{self.desired_healthy} must stay so): wait until more of its pods are Ready, add replicas, raise its "
            "maxUnavailable or lower its minAvailable, or delete the pods by hand"
        )


def read_budget(body: Mapping[str, Any]) -> DisruptionBudget:
    """From an object of policy/v1."""
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    return DisruptionBudget(
        namespace=metadata["namespace"],
        name=metadata["name"],
        selector=read_selector(spec.get("selector")),
        allowed=status.get("disruptionsAllowed", 0),
        healthy=status.get("currentHealthy", 0),
        desired_healthy=status.get("desiredHealthy", 0),
        current=status.get("observedGeneration", 0) >= metadata.get("generation", 0),
        spends_on_unhealthy=spec.get("unhealthyPodEvictionPolicy", "IfHealthyBudget") != "AlwaysAllow",
    )


def trim_budget(body: dict[str, Any]) -> dict[str, Any]:
    """What is read of one. A selector beyond the bound selects nothing here: evictions are the API server's to refuse,
    we only say by which budget it did."""
    spec = body.get("spec") or {}
    selector = spec.get("selector") or {}
    few = (
        len(selector.get("matchLabels") or ()) <= MOST_ENTRIES
        and sum(1 + len(each.get("values") or ()) for each in selector.get("matchExpressions") or ()) <= MOST_ENTRIES
    )
    return {
        "metadata": picked(body["metadata"], (*IDENTITY, "generation")),
        "spec": picked(spec, ("unhealthyPodEvictionPolicy", *(("selector",) if few else ()))),
        "status": picked(
            body.get("status"), ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "observedGeneration")
        ),
    }


def budgets_of(pod: Pod, budgets: Iterable[DisruptionBudget]) -> tuple[DisruptionBudget, ...]:
    return tuple(budget for budget in budgets if budget.covers(pod))


def too_small_for(pods: Iterable[Pod], budgets: Iterable[DisruptionBudget]) -> tuple[DisruptionBudget, ...]:
    """Those that do not allow the eviction of all `pods` at once."""
    pods = tuple(pods)
    found = []
    for budget in budgets:
        needed = sum(1 for pod in pods if budget.covers(pod) and budget.is_spent_on(pod))
        if needed > budget.allowed or (needed and not budget.current):
            found.append(budget)
    return tuple(found)
