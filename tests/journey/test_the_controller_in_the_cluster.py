"""The controllers run as pods on the nodes that they manage, and one is asked to reboot the node that it stands on.

Real: the servers, their kubelets and containerd, a registry, the image of `make package`, the chart's Deployment. By
hand: what kube-proxy would do for the API server's address (see controllers_in_pods.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab.demo.maintenance import find_latest
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import FINAL_PHASES, Maintenance
from provisioner.cluster.resources import of
from tests.journey.controllers_in_pods import ControllersInPods, controllers_in_pods
from tests.journey.virtual_rack import VirtualRack

pytestmark = [pytest.mark.timeout(2400), pytest.mark.long]

SERVERS = ("r01-u01", "r01-u02", "r01-u03")


@pytest.fixture(scope="module")
def controllers(rack: VirtualRack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllersInPods]:
    folder: Path = tmp_path_factory.mktemp("controllers")
    with controllers_in_pods(rack, folder) as found:
        yield found


def test_a_pod_reboots_another_node_then_gives_up_its_leadership_for_its_own_and_the_job_is_done(
    rack: VirtualRack, controllers: ControllersInPods
) -> None:
    asked = datetime.now(UTC)
    other = next(name for name in SERVERS if name not in controllers.pods().values())
    before = {name: rack.node_boot_id(name) for name in SERVERS}

    rack.kubectl("provision", "reimage", other, "-m", "by a pod")
    rack.wait(f"{other} is on its way", lambda: _latest(rack, other, asked).status.reboot is not None)
    # Whoever leads now: a pod on an emulated machine may have lost its Lease to the other one since the start.
    first, own = _leader_and_its_node(rack, controllers)
    # Asked while it is busy: this request is carried over to whoever leads next.
    rack.kubectl("provision", "reimage", own, "-m", "where the leader stands")
    for name in (other, own):
        rack.wait(f"the maintenance of {name} has ended", lambda name=name: _has_ended(rack, name, asked))  # type: ignore[misc]

    for name in (other, own):
        done = _latest(rack, name, asked)
        for entry in done.status.timeline:
            print(name, entry.time, entry.phase, entry.reason, entry.message)
        assert done.status.phase == "Completed"
        assert rack.node_boot_id(name) != before[name]
    reboot = _latest(rack, own, asked).status.reboot
    assert reboot is not None
    # Leadership went from one pod to the other before anything happened to the node.
    rack.wait("another pod leads", lambda: controllers.leader() not in (None, first))
    led = [
        parse_time(each["timestamp"])
        for pod in controllers.pods()
        if pod != first
        for each in controllers.log(pod)
        if each.get("event") == "leadership acquired"
    ]
    assert min(led) <= parse_time(reboot.started_time)

    rack.wait("two are ready again", lambda: len(controllers.pods()) == 2)
    assert first not in controllers.pods()


def _leader_and_its_node(rack: VirtualRack, controllers: ControllersInPods) -> tuple[str, str]:
    found: list[tuple[str, str]] = []

    def somebody_leads() -> bool:
        nodes, leader = controllers.pods(), controllers.leader()
        if leader in nodes:
            found.append((str(leader), nodes[str(leader)]))
        return bool(found)

    rack.wait("a pod leads", somebody_leads)
    return found[-1]


def _latest(rack: VirtualRack, server: str, since: datetime) -> Maintenance:
    found = rack.ask(lambda cluster: cluster.list(of(Maintenance))).items
    latest = find_latest([decode(Maintenance, item) for item in found], server, since)
    assert latest is not None
    return latest


def _has_ended(rack: VirtualRack, server: str, since: datetime) -> bool:
    return _latest(rack, server, since).status.phase in FINAL_PHASES
