"""A request under Now names the pods that it ends, before it is made."""

from __future__ import annotations

from typing import Any, cast

import pytest

from provisioner.api.machinery.errors import Forbidden
from provisioner.cli.kubectl.asking import NAMED_NODES, NAMED_PODS, tell_what_ends
from provisioner.cli.kubectl.targets import ServerTarget
from provisioner.cluster.client import Cluster, ListResult
from tests.boot.objects import server


def pod(name: str, *, kind: str = "Job", phase: str = "Running") -> dict[str, Any]:
    owner = {"kind": kind, "name": "owner", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "ownerReferences": [owner]},
        "spec": {},
        "status": {"phase": phase},
    }


class Pods:
    """The same on every node; `reads` are the nodes that were asked about."""

    def __init__(self, *pods: dict[str, Any], forbidden: bool = False) -> None:
        self.pods, self.forbidden, self.reads = pods, forbidden, list[str]()

    def list(self, kind: Any, *, field_selector: str, trim: Any) -> ListResult:
        if self.forbidden:
            raise Forbidden("may not list pods", hint="ask for the right")
        self.reads.append(field_selector)
        return ListResult(items=[kept for each in self.pods if (kept := trim(each)) is not None], resource_version="1")


def told(pods: Pods, nodes: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    targets = [ServerTarget(server=server(f"r01-u{number:02d}"), node=None) for number in range(1, nodes + 1)]
    tell_what_ends(cast(Cluster, pods), targets)
    out, err = capsys.readouterr()
    assert out == "", "what programs read stays as it is"
    return err.splitlines()


def test_pods_that_a_drain_ends_are_named_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    there = Pods(pod("train-1"), pod("train-0"), pod("done", phase="Succeeded"), pod("agent", kind="DaemonSet"))
    assert told(there, 1, capsys) == ["node/r01-u01 2 pods end now: ml/train-0, ml/train-1"]
    assert there.reads == ["spec.nodeName=r01-u01"]
    assert told(Pods(), 1, capsys) == []


def test_names_and_nodes_are_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    many = Pods(*(pod(f"train-{number}") for number in range(NAMED_PODS + 3)))
    lines = told(many, NAMED_NODES + 5, capsys)
    assert len(many.reads) == NAMED_NODES
    assert lines[0].endswith(" and 3 more")
    assert lines[-1] == "and what runs on 5 more nodes"


def test_who_may_not_list_pods_is_told_that_what_runs_there_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(Pods(forbidden=True), 3, capsys) == [
        "Now ends what runs there; its pods may not be listed with these credentials"
    ]
