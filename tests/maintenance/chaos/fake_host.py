"""What a fake machine says to the API server: join service, kubelet, agent and health checks in short.

Simulated here: the join configuration is handed out once an order, as provisioner.join does; a kubelet reports boot id
and Ready; the node controller says Unknown 40 s after it fell silent; the agent writes node-facts, stages, and obeys an
intent once; checks take 20 s. Leases are not written: Ready alone says that a Node lives. On a real API server there is
a real node controller, too, which goes by the wall clock: it is kept from calling a Node Unknown that is not by ours.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from provisioner.api import Image, NodePool, Server
from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.machinery.errors import Conflict, NotFound
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    BOOT_REPORT_ANNOTATION,
    NODE_FACTS_ANNOTATION,
    PREPARED_ORDER_ANNOTATION,
    VERIFICATION_TAINT,
)
from provisioner.api.nodes.facts import BootIntent, BootReport, NodeFacts, ReportState
from provisioner.api.servers.server import JoinStatus, Verification
from provisioner.cluster.resources import NODES, of
from provisioner.rules.assigned_image import current_image
from provisioner.rules.pool_of_server import booting_pool
from tests.maintenance.chaos.accounts import Accounts
from tests.maintenance.chaos.fake_machine import BOOT_SECONDS, KEXEC_SECONDS, FakeMachine

ASK_AGAIN: Final = timedelta(seconds=30)
CHECKS: Final = timedelta(seconds=20)
HEARTBEAT_SECONDS: Final = 10.0
"""Of the wall clock. The real node controller calls a Node Unknown that said nothing for 50 s."""


class FakeHost:
    """The software of one machine. `react` is called whenever anything changed or time passed."""

    def __init__(self, machine: FakeMachine, accounts: Accounts, pool: str) -> None:
        self.machine, self._pool = machine, pool
        self._node = accounts.node(machine.name)
        self._boot, self._health = accounts.service("boot"), accounts.service("health")
        self._checks_due: datetime | None = None
        self._reported: tuple[Any, ...] = ()
        self._digests: dict[str, str] = {}
        self._count, self._fake = accounts.count, accounts.admin
        self._seen: tuple[Any, ...] = ()
        self._heartbeat_at = time.monotonic()

    def next_moment(self) -> datetime | None:
        moments = [self.machine.next_moment(), self._checks_due]
        return min((m for m in moments if m is not None and m > self.machine.clock.now), default=None)

    def react(self) -> None:
        """Do what is due now."""
        machine = self.machine
        if machine.due is not None and machine.due <= machine.clock.now:
            machine.state = "Asking"
            machine.due = None if self._join() else machine.clock.now + ASK_AGAIN
        if machine.state == "Running" and machine.silent_since() is not None:
            if machine.is_missed():
                self._report("Unknown", "kubelet stopped posting node status")
            if self._may_have_changed():
                self._run_agent()
        elif machine.state == "Running":
            changed = self._may_have_changed()
            if changed or self._reported[1:2] == ("Unknown",):
                self._be_a_node()
                self._report("True", "kubelet is posting ready status")
                self._run_agent()
            self._run_checks()
            if changed:
                self._let_in()
        elif machine.is_unreachable():
            self._report("Unknown", "kubelet stopped posting node status")
        if self._count is not None and not machine.is_unreachable() and machine.silent_since() is None:
            self._beat()

    def _may_have_changed(self) -> bool:
        """A real API server takes milliseconds for each read: it is asked only after somebody here wrote anything."""
        machine = self.machine
        writes = self._count.writes if self._count is not None else len(self._fake.changes)
        before = self._seen
        self._seen = (writes, machine.state, machine.boot_id, tuple(machine.habits), len(machine.lasting))
        return before != self._seen

    def _beat(self) -> None:
        """Post the heartbeat that is due by the wall clock, however much or little of the history's time has passed."""
        if time.monotonic() - self._heartbeat_at < HEARTBEAT_SECONDS or self._reported[1:2] != ("True",):
            return
        self._heartbeat_at = time.monotonic()
        beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": rfc3339(datetime.now(UTC))}
        try:
            if self._node.get(NODES, self.machine.name)["metadata"]["uid"] == self._reported[0]:
                patch = {"status": {"conditions": [beat]}}
                self._node.strategic_patch(NODES, self.machine.name, patch, subresource="status", manager="kubelet")
        except NotFound:
            return

    def _be_a_node(self) -> None:
        """A kubelet does not make its Node anew, but reports to whatever Node bears its name."""
        try:
            node = self._node.get(NODES, self.machine.name)
        except NotFound:
            return
        if node["metadata"]["uid"] != self._reported[0]:
            self._report("True", "kubelet is posting ready status")
            self._write_facts()
            self._checks_due = self.machine.clock.now + CHECKS

    def firmware_image(self) -> str:
        """What the boot service would serve."""
        try:
            server = self._boot.read(Server, self.machine.name)
            pool = self._boot.read(NodePool, booting_pool(server).name or self._pool)
        except NotFound:
            return self.machine.running_image
        return current_image(server, pool).name or self.machine.running_image

    def ordered_boot(self) -> tuple[str, str | None, bool]:
        """What the firmware would boot, the attempt in whose name it is ordered, and whether that was tried before."""
        try:
            order = self._boot.read(Server, self.machine.name).status.order
        except NotFound:
            order = None
        if order is None:
            return self.firmware_image(), None, False
        return self.firmware_image(), order.attempt_id, order.reason != "Requested"

    def start(self) -> None:
        """Be a Node that has run for a while: as if the join and its checks were long over."""
        self._report("True", "kubelet is posting ready status")
        self._write_facts()
        self._say_verified("True", "Passed")

    def _join(self) -> bool:
        machine, now = self.machine, self.machine.clock.now
        try:
            server = self._boot.read(Server, machine.name)
        except NotFound:
            return False
        order, join = server.status.order, server.status.join
        if order is None or not self._fetches_image():
            return False
        if join is not None and join.order_id == order.id:
            refused = {**to_json(join), "refusedTime": rfc3339_micro(now), "refusedReason": "AlreadyFetched"}
            self._boot.apply_status(Server, machine.name, {"join": refused}, manager="provisioner-join")
            return False
        handed = JoinStatus(order_id=order.id, boot_id=machine.boot_id, fetched_time=rfc3339_micro(now))
        self._boot.apply_status(Server, machine.name, {"join": to_json(handed)}, manager="provisioner-join")
        machine.state, machine.down_since, machine.log[-1].joined_at = "Running", None, now
        machine.story.tell(machine.name, f"joined in order {order.id[:8]} with {machine.running_image}")
        self._report("True", "kubelet is posting ready status")
        self._write_facts()
        self._checks_due = now + CHECKS
        return True

    def _fetches_image(self) -> bool:
        """Whether there is an Image of what it boots; while there is none its firmware asks again what to boot."""
        machine = self.machine
        if self._boot.find(of(Image), machine.running_image) is not None:
            return True
        machine.running_image = machine.log[-1].image = self.firmware_image()
        return False

    def _report(self, ready: str, message: str) -> None:
        machine = self.machine
        said = (ready, machine.boot_id if ready == "True" else None)
        try:
            node = self._node.get(NODES, machine.name)
        except NotFound:
            if ready != "True" or machine.down_since is not None:
                return
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name}}
            node, self._reported = self._node.create(NODES, body), ()
        if (node["metadata"]["uid"], *said) == self._reported:
            return
        self._reported = (node["metadata"]["uid"], *said)
        moment = rfc3339(machine.clock.now)
        condition = {"type": "Ready", "status": ready, "reason": "KubeletReady", "message": message}
        status: dict[str, Any] = {"conditions": [{**condition, "lastTransitionTime": moment}]}
        if ready == "True":
            status["nodeInfo"] = {"bootID": machine.boot_id}
        self._node.strategic_patch(NODES, machine.name, {"status": status}, subresource="status", manager="kubelet")

    def _write_facts(self) -> None:
        facts = NodeFacts(
            format=1,
            boot_id=self.machine.boot_id,
            image_digest=self._digest(self.machine.running_image),
            time=rfc3339(self.machine.clock.now),
            product="Fake 1",
            cpus=8,
            memory_bytes=2**33,
            kexec_supported=True,
        )
        self._annotate(NODE_FACTS_ANNOTATION, facts)

    def _annotate(self, key: str, value: Any) -> None:
        patch = {"metadata": {"annotations": {key: json.dumps(to_json(value))}}}
        self._node.patch(NODES, self.machine.name, patch, manager="provisioner-agent")

    def _digest(self, image: str) -> str:
        if image not in self._digests:
            self._digests[image] = str(self._boot.read(Image, image).spec.digest)
        return self._digests[image]

    def _run_agent(self) -> None:
        machine = self.machine
        try:
            node = self._node.get(NODES, machine.name)
        except NotFound:
            return
        text = (node["metadata"].get("annotations") or {}).get(BOOT_INTENT_ANNOTATION)
        intent = from_json(BootIntent, json.loads(text)) if text else None
        if intent is None or machine.has("agent is deaf"):
            return
        key = f"{intent.id}/{intent.action}/{intent.image_digest}"
        if key in machine.obeyed or intent.boot_id_before.lower() != machine.boot_id:
            return
        machine.obeyed.add(key)
        if intent.action == "Stage":
            self._answer(intent, "Staged")
            return
        self._answer(intent, "Rebooting")
        if intent.action == "Kexec":
            machine.boot(intent.image, KEXEC_SECONDS, "kexec by its agent", intent.id)
        else:
            machine.boot(self.firmware_image(), BOOT_SECONDS, "rebooted by its agent", intent.id)

    def _answer(self, intent: BootIntent, state: ReportState) -> None:
        report = BootReport(
            id=intent.id,
            state=state,
            image_digest=intent.image_digest,
            boot_id=self.machine.boot_id,
            message=f"{intent.action} was asked for",
            time=rfc3339(self.machine.clock.now),
        )
        self._annotate(BOOT_REPORT_ANNOTATION, report)

    def _run_checks(self) -> None:
        if self._checks_due is None or self._checks_due > self.machine.clock.now:
            return
        self._checks_due = None
        if self.machine.has("checks fail"):
            self._say_verified("False", "ChecksFailed")
        else:
            self._say_verified("True", "Passed")

    def _say_verified(self, status: str, reason: str) -> None:
        machine, moment = self.machine, rfc3339(self.machine.clock.now)
        machine.verified_boot_id = machine.boot_id if status == "True" else None
        if status == "True":
            machine.log[-1].passed_at = machine.log[-1].passed_at or machine.clock.now
        else:
            machine.log[-1].failed_at = machine.clock.now
        verification = Verification(
            boot_id=machine.boot_id,
            image_digest=self._digest(machine.running_image),
            attempt=1,
            started_time=moment,
            finished_time=moment,
        )
        condition = {"type": "Verified", "status": status, "reason": reason, "message": "as the fake checks say"}
        body = {"verification": to_json(verification), "conditions": [{**condition, "lastTransitionTime": moment}]}
        try:
            self._health.apply_status(Server, machine.name, body, manager="provisioner-health")
        except NotFound:
            return
        self._let_in()

    def _let_in(self) -> None:
        """Take the taint of the verification off a boot that has passed its checks, also where it was put on anew."""
        machine = self.machine
        try:
            node = self._health.get(NODES, machine.name)
            server = self._health.read(Server, machine.name)
        except NotFound:
            return
        order, join = server.status.order, server.status.join
        ordered = order is not None and join is not None and order.id == join.order_id
        if machine.verified_boot_id != machine.boot_id or not ordered or join.boot_id != machine.boot_id:
            return
        if (node["metadata"].get("annotations") or {}).get(PREPARED_ORDER_ANNOTATION) != order.id:
            return
        taints = (node.get("spec") or {}).get("taints") or []
        kept = [taint for taint in taints if taint["key"] != VERIFICATION_TAINT]
        if kept != taints:
            patch = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": kept}}
            with suppress(Conflict):  # then it is looked at once more
                self._health.patch(NODES, machine.name, patch, manager="provisioner-health")
