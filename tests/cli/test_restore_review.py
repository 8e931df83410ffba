"""What a restored past is told to do, and that nothing is said of a cluster that is as good as the present."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.cli.restore.review import Past, ReviewFinding, denied_credentials, review
from tests.api.objects import maintenance, node_pool, server

NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
BOOT, OTHER = "0a" * 16, "0b" * 16
ORDER = {"id": "o1", "reason": "FirstBoot", "orderedTime": "2026-11-23T10:00:00Z", "attempt": 1, "imageRef": "i"}
RUNS = {"bootID": BOOT, "readyTime": "2026-11-23T10:05:00Z", "order": ORDER, "join": {"orderID": "o1", "bootID": BOOT}}


def a_server(status: dict[str, Any] | None = None, **spec: Any) -> Server:
    body = server(acceptance="Accepted", nodePoolRef="gpu", **spec)
    return decode(Server, body | {"status": RUNS if status is None else status})


def node(boot: str | None = BOOT, taints: tuple[dict[str, str], ...] = ()) -> dict[str, Any]:
    status = {"nodeInfo": {"bootID": boot}} if boot else {}
    return {"metadata": {"name": "r01-u01"}, "spec": {"taints": [*taints]}, "status": status}


def lease(ago: float = 5) -> dict[str, Any]:
    return {"spec": {"renewTime": rfc3339_micro(NOW - timedelta(seconds=ago))}}


def past(**changes: Any) -> Past:
    good: dict[str, Any] = {
        "servers": [a_server()],
        "pools": [decode(NodePool, node_pool())],
        "maintenances": [],
        "nodes": {"r01-u01": node()},
        "leases": {"r01-u01": lease()},
        "tokens": [],
        "requests": [],
    }
    return Past(**good | changes)


def only(found: list[ReviewFinding]) -> ReviewFinding:
    (finding,) = found
    return finding


def denied(
    user: str, reason: str = "OldCertificate", made: str = "2026-11-24T11:00:00Z", key: str = "1"
) -> dict[str, Any]:
    extra = {"authentication.kubernetes.io/credential-id": [f"X509SHA256={key}"]}
    spec = {"username": user, "groups": ["system:nodes"], "extra": extra, "request": base64.b64encode(b"x").decode()}
    condition = {"type": "Denied", "reason": reason, "status": "True"}
    return {"metadata": {"name": "csr", "creationTimestamp": made}, "spec": spec, "status": {"conditions": [condition]}}


def test_of_a_fleet_as_it_was_nothing_is_said() -> None:
    assert review(past(), NOW) == []


def test_a_node_with_our_taint_is_named_and_one_with_another_is_not() -> None:
    ours = {"key": "provisioner.dev/verification", "effect": "NoExecute"}
    finding = only(review(past(nodes={"r01-u01": node(taints=(ours,))}), NOW))
    assert finding.lines == ("r01-u01: provisioner.dev/verification:NoExecute",)
    assert "kubectl taint node NODE provisioner.dev/verification-" in finding.remedy
    assert review(past(nodes={"r01-u01": node(taints=({"key": "site", "effect": "NoExecute"},))}), NOW) == []


def test_a_server_that_is_to_be_on_and_has_no_node_is_named() -> None:
    assert "each is booted anew" in only(review(past(nodes={}), NOW)).title
    for unwanted in ({"powerState": "Off"}, {"nodePoolRef": None}):
        servers = (
            [a_server(**unwanted)] if "nodePoolRef" not in unwanted else [decode(Server, server(acceptance="Accepted"))]
        )
        assert review(past(servers=servers, nodes={}), NOW) == []


def test_a_node_that_was_not_heard_is_waited_for_and_what_it_says_of_its_boot_is_old() -> None:
    finding = only(review(past(leases={"r01-u01": lease(3600)}, nodes={"r01-u01": node(OTHER)}), NOW))
    assert (finding.title, finding.lines) == ("Nodes that have not been heard since", ("r01-u01",))


def test_a_node_that_runs_another_boot_than_is_on_record_is_named() -> None:
    finding = only(review(past(nodes={"r01-u01": node(OTHER)}), NOW))
    assert finding.lines == (f"r01-u01: runs {OTHER}, on record is {BOOT}",)
    adopted = a_server({})
    assert review(past(servers=[adopted], nodes={"r01-u01": node(OTHER)}), NOW) == [], "it was never ours to boot"


def test_open_maintenances_and_boots_under_way_are_named_and_ended_ones_are_not() -> None:
    opened, ended = (
        maintenance("m1") | {"status": {"phase": "Waiting"}},
        maintenance("m2") | {"status": {"phase": "Completed"}},
    )
    found = review(past(maintenances=[decode(Maintenance, opened), decode(Maintenance, ended)]), NOW)
    assert only(found).lines == ("r01-u01: m1, Waiting",)
    booting = a_server(RUNS | {"readyTime": None})
    assert only(review(past(servers=[booting]), NOW)).lines == ("r01-u01: ordered at 2026-11-23T10:00:00Z (FirstBoot)",)


def test_a_rollout_is_named_until_it_is_complete() -> None:
    rollout = {"imageRef": "i2", "startedTime": "2026-11-24T10:00:00Z", "passed": 0, "message": ""}
    under_way = node_pool() | {"status": {"rollout": rollout}}
    assert only(review(past(pools=[decode(NodePool, under_way)]), NOW)).lines == (
        "gpu: to i2, since 2026-11-24T10:00:00Z",
    )
    over = node_pool() | {"status": {"rollout": rollout | {"completedTime": "2026-11-24T11:00:00Z"}}}
    assert review(past(pools=[decode(NodePool, over)]), NOW) == []


def test_the_last_denied_certificate_of_a_node_counts_and_nobody_elses() -> None:
    requests = [
        denied("system:node:r01-u01", made="2026-11-24T11:00:00Z", key="old"),
        denied("system:node:r01-u01", made="2026-11-24T11:30:00Z", key="new"),
        denied("system:node:r01-u02", reason="BootEnds", key="other"),
        denied("system:bootstrap:abcdef", key="token"),
        denied("alice system:node:r01-u03", key="alice"),
    ]
    assert denied_credentials(requests) == {"r01-u01": "X509SHA256=new"}


def test_what_is_secret_in_a_token_is_not_shown() -> None:
    token = {"metadata": {"name": "bootstrap-token-abcdef", "labels": {"provisioner.dev/server": "r01-u01"}}}
    assert only(review(past(tokens=[token]), NOW)).lines == ("bootstrap-token-abcdef of server r01-u01",)
    foreign = {"metadata": {"name": "bootstrap-token-kubeadm"}}
    assert review(past(tokens=[foreign]), NOW) == []
