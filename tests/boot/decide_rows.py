"""The boot controller's decisions, as tables: each row is a sentence. Noon is when the order was given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from provisioner.api import Image, Maintenance, NodePool, Rack
from provisioner.api.pools.node_pool import StageTimeouts
from provisioner.api.servers.server import BootOrder, BootProgress, JoinStatus, PowerStatus, ServerStatus, StageTime
from provisioner.rules.liveness import Heartbeat, NodeLife, fresh_time
from tests.boot.objects import DIGEST, NOON, at, attempt, condition, image, maintenance, pool

NEW = "new-order"
BOOT = "11111111-1111-4111-8111-111111111111"
OTHER_BOOT = "22222222-2222-4222-8222-222222222222"

ORDER = BootOrder(id="o1", reason="FirstBoot", ordered_time=at(0), attempt=1, image_ref="gpu-node-abababababab")
POWERED = PowerStatus(order_id="o1", order_time=at(1), state="On", observed_time=at(1))
JOINED = JoinStatus(order_id="o1", boot_id=BOOT, fetched_time=at(35))
EXPIRED = JoinStatus(refused_time=at(8990), refused_reason="OrderExpired")
BY_AGENT = replace(ORDER, reason="Requested", method="Reboot", maintenance_ref="r01-u01-1", attempt_id="try-1")
REFUSED = replace(JOINED, refused_time=at(500), refused_reason="AlreadyFetched")


def heard(stage: Any, seconds: float, message: str | None = None, boot_id: str | None = BOOT) -> BootProgress:
    return BootProgress(
        stage=stage, boot_id=boot_id, message=message, stage_times=(StageTime(stage=stage, time=at(seconds)),)
    )


def node(
    ready: bool | None = True, *, boot_id: str | None = BOOT, lease: float | None = None, message: str = ""
) -> NodeLife:
    """A Node; `lease`: when it was renewed, in seconds after noon."""
    renewed = None if lease is None else NOON + timedelta(seconds=lease)
    heartbeat = Heartbeat(renewed=renewed)
    return NodeLife(
        name="r01-u01",
        ready=ready,
        ready_message=message,
        boot_id=boot_id,
        has_reported=boot_id is not None,
        heartbeat=heartbeat,
    )


def seen_lease(since: float, *, moved: bool = True, renewed: float = 0) -> NodeLife:
    """A Node that is not Ready, whose Lease the controller has seen as it is since then; `renewed`: what that says."""
    moment = NOON + timedelta(seconds=since)
    life = node(False, lease=renewed)
    return replace(life, heartbeat=replace(life.heartbeat, seen=moment, moved=moved))


def slow_lease(renewed: float) -> NodeLife:
    """A Node that is not Ready, whose Lease lasts 160 s and was renewed so many seconds after noon."""
    life = node(False, lease=renewed)
    return replace(life, heartbeat=replace(life.heartbeat, fresh=fresh_time(160)))


def status(**fields: Any) -> ServerStatus:
    return ServerStatus(**{"address": "10.80.0.21", "subnet_name": "boot", "order": ORDER, **fields})


@dataclass
class Row:
    """At `seconds` after the order: these facts give this Ready condition and, if one is given, this order's reason."""

    sentence: str
    ready: str
    seconds: float = 40
    status: ServerStatus | None = None
    node: NodeLife | None = None
    orders: str | None = None
    says: str = ""
    spec: dict[str, Any] | None = None
    pool: NodePool | None = None
    no_pool: bool = False
    next_image: Image | None = None
    rack: Rack | None = None
    stage: str | None = None
    other_node: str | None = None
    maintenance: Maintenance | None = None
    awaited: tuple[str, ...] = ()


NO_BMC: dict[str, Any] = {"bmc": None}
SHORT = StageTimeouts(firmware=10, ipxe=10, stage1=10, root=10, system=10, token=10)
READY_ONCE: dict[str, Any] = {"power": POWERED, "join": JOINED, "ready_time": at(40)}
NO_SECRET = condition(
    "PoweredOn",
    "Unknown",
    "CredentialsMissing",
    "Secret provisioner-bmcs/bmc does not exist; remedy: kubectl create secret generic bmc",
)
DUPLICATE = condition("Accepted", "False", "Duplicate", "Server r01-u01 claims what Server r01-u02 has already")

WAITING = [
    Row(
        "one that was switched on waits for its card",
        "WaitsForDPU",
        status=status(power=POWERED),
        awaited=("r01-u01-dpu",),
        says="kubectl describe server r01-u01-dpu",
        stage="Firmware",
    ),
    Row(
        "and is not reset meanwhile, which would take the card's power away",
        "WaitsForDPU",
        seconds=2282,
        status=status(power=POWERED),
        awaited=("r01-u01-dpu",),
        says="DPU 'r01-u01-dpu'",
        stage="Firmware",
    ),
    Row(
        "an unaccepted server waits for a person",
        "PendingAcceptance",
        spec={"acceptance": "Pending"},
        status=ServerStatus(),
        says="kubectl provision accept r01-u01",
    ),
    Row("a rejected one is not booted", "Rejected", spec={"acceptance": "Rejected"}, status=ServerStatus()),
    Row(
        "a rejected one is not Ready even if its Node is",
        "Rejected",
        spec={"acceptance": "Rejected"},
        status=status(**READY_ONCE),
        node=node(),
    ),
    Row("one that shall be off is not Ready", "PoweredOff", spec={"power_state": "Off"}, status=status(**READY_ONCE)),
    Row(
        "one without a pool is not booted",
        "NoNodePool",
        spec={"node_pool_ref": None},
        no_pool=True,
        status=status(order=None),
    ),
    Row("one whose pool is gone is not booted", "NodePoolMissing", no_pool=True, status=status(order=None)),
    Row("one without an address is not booted", "NoAddress", status=ServerStatus()),
    Row(
        "and says why it has none, where the inventory does",
        "SubnetFull",
        status=ServerStatus(conditions=(condition("Accepted", "False", "SubnetFull", "no address is left in boot"),)),
        says="no address is left in boot",
    ),
    Row(
        "one whose image has no files is not booted",
        "ImageUnavailable",
        next_image=image(available="False"),
        status=status(order=None),
    ),
    Row(
        "one whose pool has an argument that no script can hold is not booted",
        "InvalidKernelArguments",
        pool=pool(kernel_arguments=("provisioner.join=https://evil",)),
        status=status(order=None),
        says="NodePool 'gpu'",
    ),
    Row(
        "one that was ordered before is not left to time out for such an argument",
        "InvalidKernelArguments",
        pool=pool(kernel_arguments=("a b",)),
        status=status(power=POWERED),
        says="leave out spaces",
        stage="Firmware",
    ),
    Row(
        "one that claims what another has is not booted, though it has an address yet",
        "Duplicate",
        status=status(order=None, conditions=(DUPLICATE,)),
        says="kubectl delete server r01-u01",
    ),
    Row(
        "nor booted again",
        "Duplicate",
        seconds=2000,
        status=status(power=POWERED, conditions=(DUPLICATE,)),
        says="r01-u02 has already",
        stage="Firmware",
    ),
    Row(
        "one whose machine runs under another name is not booted",
        "RunsAsOtherNode",
        status=status(order=None),
        other_node="worker-7",
        says="kubectl delete node worker-7",
    ),
    Row(
        "one whose subnet its rack lost is not booted",
        "SubnetMissing",
        status=status(order=None, subnet_name="other"),
        says="name one of boot in spec.subnetName",
    ),
    Row(
        "one that hangs is not booted again while its image is gone",
        "ImageUnavailable",
        seconds=3000,
        next_image=image(available="False"),
        status=status(power=POWERED),
        says="the last that was heard of is firmware",
        stage="Firmware",
    ),
    Row("an ordered one waits for its BMC", "Ordered", seconds=5, says="waits for the BMC", stage="Ordered"),
    Row(
        "a BMC that does not answer is named, and not ordered again",
        "StageTimedOut",
        seconds=200,
        says="PoweredOn",
        stage="Ordered",
    ),
    Row(
        "a BMC whose credentials are missing is the cause, and not that the boot is late",
        "CredentialsMissing",
        seconds=200,
        status=status(conditions=(NO_SECRET,)),
        says="kubectl create secret generic bmc",
        stage="Ordered",
    ),
    Row(
        "and it is so before the boot is late",
        "CredentialsMissing",
        seconds=5,
        status=status(conditions=(NO_SECRET,)),
        says="Secret provisioner-bmcs/bmc does not exist",
        stage="Ordered",
    ),
    Row(
        "of a boot that got past the BMC it explains nothing",
        "IPXE",
        status=status(power=POWERED, progress=heard("IPXE", 10), conditions=(NO_SECRET,)),
        stage="IPXE",
    ),
    Row(
        "an obstacle goes before the BMC, which has nothing to do with it",
        "ImageUnavailable",
        seconds=5,
        status=status(order=None, conditions=(NO_SECRET,)),
        next_image=image(available="False"),
    ),
    Row(
        "one without a BMC waits for a hand, however long",
        "Ordered",
        seconds=90_000,
        spec=NO_BMC,
        says="power button",
        stage="Ordered",
    ),
    Row(
        "a powered one waits for iPXE", "Firmware", status=status(power=POWERED), says="to start iPXE", stage="Firmware"
    ),
    Row(
        "one in iPXE waits for stage-1", "IPXE", status=status(power=POWERED, progress=heard("IPXE", 10)), stage="IPXE"
    ),
    Row(
        "one in stage-1 says what the machine says",
        "Root",
        status=status(power=POWERED, progress=heard("Root", 12, "root digest is wrong, trying again")),
        says="root digest is wrong",
        stage="Root",
    ),
    Row(
        "a stage that lasts longer than it may is named, and so is the end of the boot",
        "StageTimedOut",
        seconds=200,
        status=status(power=POWERED, progress=heard("Stage1", 10, "no carrier")),
        says="the machine said: no carrier; unless it goes on, another boot is ordered at 2026-01-02T12:38:01Z",
        stage="Stage1",
    ),
    Row(
        "without a BMC nobody but its machine knows how far a boot is, and it has all the time",
        "StageTimedOut",
        seconds=90_000,
        spec=NO_BMC,
        status=status(progress=heard("Stage1", 10)),
        says="waited for stage-1 to begin fetching",
        stage="Stage1",
    ),
    Row(
        "progress of the boot before the order is not this boot's",
        "Firmware",
        status=status(power=POWERED, progress=heard("System", -500)),
        stage="Firmware",
    ),
    Row(
        "one refused at the token says so",
        "Token",
        status=status(
            power=POWERED,
            progress=heard("Token", 30),
            join=JoinStatus(refused_time=at(31), refused_reason="NotAccepted"),
        ),
        says="NotAccepted",
        stage="Token",
    ),
    Row(
        "one whose join waits for a person names what for",
        "FirmwareNotApproved",
        status=status(
            power=POWERED,
            progress=heard("Token", 30),
            conditions=(condition("Joined", "False", "FirmwareNotApproved", "no profile fits; remedy: approve it"),),
        ),
        says="no profile fits; remedy: approve it",
        stage="Token",
    ),
    Row(
        "one that has joined waits for its Node", "Kubelet", status=status(power=POWERED, join=JOINED), stage="Kubelet"
    ),
    Row(
        "a Node that is Ready from an earlier boot is not this boot's",
        "Kubelet",
        node=node(boot_id=OTHER_BOOT),
        status=status(power=POWERED, join=JOINED),
        says=OTHER_BOOT,
        stage="Kubelet",
    ),
    Row(
        "an earlier order's join is not this order's",
        "Firmware",
        node=node(boot_id=BOOT),
        status=status(power=POWERED, join=replace(JOINED, order_id="o0", fetched_time=at(-900))),
        stage="Firmware",
    ),
]

ORDERING = [
    Row("a new server is booted", "Ordered", status=status(order=None), orders="FirstBoot", stage="Ordered"),
    Row(
        "also while its card is awaited, which has its power from it",
        "Ordered",
        status=status(order=None),
        orders="FirstBoot",
        stage="Ordered",
        awaited=("r01-u01-dpu",),
    ),
    Row(
        "a Node that was made for it and never ran does not hinder that",
        "Ordered",
        status=status(order=None),
        node=node(None, boot_id=None),
        orders="FirstBoot",
        stage="Ordered",
    ),
    Row("a firmware that hangs is reset", "Ordered", seconds=2282, status=status(power=POWERED), orders="TimedOut"),
    Row(
        "a pool's shorter time-outs count",
        "Ordered",
        seconds=62,
        status=status(power=POWERED),
        orders="TimedOut",
        pool=pool(stage_timeout_seconds=SHORT),
    ),
    Row(
        "a stage-1 that hangs is reset",
        "Ordered",
        seconds=2282,
        orders="TimedOut",
        status=status(power=POWERED, progress=heard("Stage1", 10, "no carrier")),
    ),
    Row(
        "a kubelet that never reports is reset",
        "Ordered",
        seconds=400,
        orders="TimedOut",
        status=status(power=POWERED, join=JOINED),
    ),
    Row(
        "a boot that is told to begin anew for ever is given up",
        "Ordered",
        seconds=5000,
        orders="TimedOut",
        status=status(power=POWERED, progress=heard("IPXE", 4990)),
    ),
    Row(
        "without a BMC a boot that joined and hangs is armed once more",
        "Ordered",
        seconds=400,
        orders="TimedOut",
        spec=NO_BMC,
        status=status(join=JOINED),
        says="power button",
    ),
    Row(
        "power lost while it boots",
        "Ordered",
        seconds=60,
        orders="PowerLost",
        status=status(power=replace(POWERED, state="Off", observed_time=at(20)), progress=heard("Root", 12)),
    ),
    Row(
        "power lost while it was Ready",
        "Ordered",
        seconds=7200,
        orders="PowerLost",
        node=node(None, lease=7100),
        status=status(**{**READY_ONCE, "power": replace(POWERED, state="Off", observed_time=at(7150))}),
    ),
    Row(
        "power lost by a machine that was started by kexec, which no BMC has accepted",
        "Ordered",
        seconds=7200,
        orders="PowerLost",
        node=node(None, lease=7100),
        status=status(
            **{
                **READY_ONCE,
                "order": replace(ORDER, reason="Requested", method="Kexec"),
                "power": replace(POWERED, order_id="o0", state="Off", observed_time=at(7150)),
            }
        ),
    ),
    Row(
        "a panic: it asks to join again and its Node is dead",
        "Ordered",
        seconds=560,
        orders="Unordered",
        status=status(**{**READY_ONCE, "join": REFUSED}),
        node=node(False, lease=440),
    ),
    Row(
        "a machine that booted by itself goes on asking, long after its Lease was renewed last",
        "Ordered",
        seconds=560,
        orders="Unordered",
        status=status(**{**READY_ONCE, "join": REFUSED}),
        node=seen_lease(470, renewed=100_000),
    ),
    Row(
        "a Lease whose clock is a day ahead keeps nothing alive once it is not renewed",
        "Ordered",
        seconds=400,
        status=status(power=POWERED, join=JOINED),
        node=seen_lease(370, renewed=86_400),
        orders="TimedOut",
    ),
    Row(
        "such a kubelet is dead once it has missed two renewals and the third is late",
        "Ordered",
        seconds=400,
        status=status(power=POWERED, join=JOINED),
        node=slow_lease(299),
        orders="TimedOut",
    ),
    Row(
        "without a BMC an order that expired is armed again",
        "Ordered",
        seconds=9000,
        orders="Unordered",
        spec=NO_BMC,
        status=status(join=EXPIRED, progress=heard("Token", 8980)),
    ),
    Row(
        "so is one that the system itself was to carry out, and for which its Maintenance waits",
        "Ordered",
        seconds=9000,
        orders="Unordered",
        maintenance=maintenance(reboot=attempt("Reboot")),
        status=status(order=BY_AGENT, join=EXPIRED, progress=heard("Token", 8980)),
        node=node(False, lease=40),
    ),
    Row(
        "the pool's image changed before anything was fetched",
        "Ordered",
        seconds=5,
        orders="ImageChanged",
        pool=pool(image_ref="newer"),
        status=status(power=POWERED, progress=heard("IPXE", 4)),
    ),
    Row(
        "it changed before the boot has joined, however far somebody says that it is",
        "Ordered",
        seconds=40,
        orders="ImageChanged",
        pool=pool(image_ref="newer"),
        status=status(power=POWERED, progress=heard("Token", 12)),
    ),
    Row(
        "it was off on purpose and shall be on",
        "Ordered",
        seconds=9000,
        orders="PowerState",
        status=status(
            **{
                **READY_ONCE,
                "power": replace(POWERED, state="Off", observed_time=at(8000)),
                "conditions": (condition("Ready", "False", "PoweredOff"),),
            }
        ),
    ),
]

NEVER_ORDERING = [
    Row(
        "one for which nobody waits any more is left to people, whatever is asked in its name",
        "Token",
        seconds=9000,
        status=status(order=BY_AGENT, join=EXPIRED, progress=heard("Token", 8980)),
        node=node(False, lease=40),
        says="kubectl provision power-cycle r01-u01",
    ),
    Row(
        "one that the BMC was to carry out says so, too",
        "Ordered",
        seconds=100,
        status=status(order=replace(BY_AGENT, method="Reset")),
        node=node(False, lease=40),
        says="nobody any more: its Maintenance is over; requested by Maintenance 'r01-u01-1' (method Reset)",
    ),
    Row(
        "also when it has stood for longer than it may",
        "StageTimedOut",
        seconds=9000,
        status=status(order=replace(BY_AGENT, method="Reset")),
        node=node(False, lease=40),
        says="nobody any more: its Maintenance is over; requested by Maintenance 'r01-u01-1' (method Reset)",
    ),
    Row(
        "one that expired is not armed again while its Node lives",
        "Token",
        seconds=9000,
        maintenance=maintenance(reboot=attempt("Reboot")),
        status=status(order=BY_AGENT, join=EXPIRED, progress=heard("Token", 8980)),
        node=node(lease=8985),
    ),
    Row(
        "a BMC that says Off of a machine that its agent shall start by kexec resets no Node that lives",
        "PowerLost",
        seconds=9000,
        node=node(),
        status=status(
            order=replace(ORDER, reason="Requested", method="Kexec"),
            power=PowerStatus(state="Off", observed_time=at(8999)),
        ),
    ),
    Row("a Ready Node is left alone", "Ready", status=status(power=POWERED, join=JOINED), node=node(), stage="Ready"),
    Row("a Node that was Ready before any order is adopted", "Adopted", status=status(order=None), node=node()),
    Row(
        "an adopted Node that fails is not rebooted",
        "NodeNotReady",
        status=status(order=None),
        node=node(False),
        says="kubectl delete node",
    ),
    Row(
        "an adopted Node without power is not booted over the network",
        "NodeNotReady",
        node=node(False),
        status=status(order=None, power=PowerStatus(state="Off", observed_time=at(1))),
    ),
    Row(
        "a Node that fails after it was Ready is not rebooted",
        "NodeNotReady",
        seconds=9000,
        node=node(False, lease=40),
        status=status(**READY_ONCE),
        says="power-cycle",
        stage="Ready",
    ),
    Row(
        "a deleted Node is not a request to boot",
        "NodeNotReady",
        seconds=9000,
        status=status(**READY_ONCE),
        says="is gone",
        stage="Ready",
    ),
    Row(
        "a Node whose server has lost its power is not called Ready, though its condition still says so",
        "PowerLost",
        seconds=9005,
        node=node(lease=8995),
        status=status(**{**READY_ONCE, "power": replace(POWERED, state="Off", observed_time=at(9000))}),
        says="is alive",
        stage="Ready",
    ),
    Row(
        "a BMC that says Off of a server whose kubelet was heard of since is not believed",
        "Ready",
        seconds=9015,
        node=node(lease=9010),
        status=status(**{**READY_ONCE, "power": replace(POWERED, state="Off", observed_time=at(9000))}),
        stage="Ready",
    ),
    Row(
        "a server that shall be on again waits until its Node is seen to be dead, and remembers why",
        "PowerState",
        seconds=9005,
        node=node(lease=8995),
        status=status(
            **{
                **READY_ONCE,
                "power": replace(POWERED, state="Off", observed_time=at(9000)),
                "conditions": (condition("Ready", "False", "PowerState"),),
            }
        ),
        stage="Ready",
    ),
    Row(
        "a forged refused join does nothing to a Ready Node",
        "Ready",
        seconds=9000,
        node=node(lease=8995),
        status=status(**{**READY_ONCE, "join": REFUSED}),
        stage="Ready",
    ),
    Row(
        "nor to a NotReady Node whose Lease is fresh",
        "NodeNotReady",
        seconds=510,
        node=node(False, lease=500),
        status=status(**{**READY_ONCE, "join": REFUSED}),
        stage="Ready",
    ),
    Row(
        "nor when the Node, that was alive as it came, is not heard of later",
        "NodeNotReady",
        seconds=9000,
        node=node(None, lease=480),
        status=status(**{**READY_ONCE, "join": REFUSED}),
        stage="Ready",
    ),
    Row(
        "nor when that Node's own clock is an hour slow",
        "NodeNotReady",
        seconds=9000,
        node=seen_lease(8000, renewed=-3600),
        status=status(**{**READY_ONCE, "join": replace(REFUSED, refused_time=at(7999))}),
        stage="Ready",
    ),
    Row(
        "a kubelet whose clock is an hour slow is alive while its Lease is seen to change",
        "NodeNotReady",
        seconds=400,
        node=seen_lease(395, renewed=-3600),
        status=status(power=POWERED, join=JOINED),
        says="is alive",
    ),
    Row(
        "a kubelet that its pool lets renew its Lease every 40 s is alive meanwhile",
        "NodeNotReady",
        seconds=400,
        node=slow_lease(301),
        status=status(power=POWERED, join=JOINED),
        says="is alive",
    ),
    Row(
        "a Lease that the controller has only begun to look at counts as fresh",
        "NodeNotReady",
        seconds=400,
        node=seen_lease(395, moved=False, renewed=0),
        status=status(power=POWERED, join=JOINED),
        says="is alive",
    ),
    Row(
        "a Ready Node is left alone, though its server claims what another has",
        "Ready",
        status=status(power=POWERED, join=JOINED, conditions=(DUPLICATE,)),
        node=node(),
        stage="Ready",
    ),
    Row(
        "nor to a Node that is Ready, to whichever boot the join service says that it has handed its configuration",
        "Ready",
        seconds=9000,
        node=node(boot_id=OTHER_BOOT),
        status=status(**{**READY_ONCE, "join": REFUSED}),
        says="is Ready",
        stage="Ready",
    ),
    Row(
        "a refused join does not stop a boot that is nearly done",
        "Kubelet",
        seconds=60,
        status=status(power=POWERED, join=replace(JOINED, refused_time=at(50), refused_reason="AlreadyFetched")),
    ),
    Row(
        "a BMC that says Off resets no Node that its own condition calls Ready",
        "PowerLost",
        seconds=9000,
        node=node(),
        status=status(**{**READY_ONCE, "power": replace(POWERED, state="Off", observed_time=at(8999))}),
    ),
    Row(
        "a kubelet that lives but is not Ready is not reset by the time-out",
        "NodeNotReady",
        seconds=400,
        node=node(False, lease=395, message="cni plugin not initialized"),
        status=status(power=POWERED, join=JOINED),
        says="kubectl describe node",
    ),
    Row(
        "a refusal that a person must settle orders nothing",
        "Token",
        seconds=60,
        status=status(
            power=POWERED,
            progress=heard("Token", 30),
            join=JoinStatus(refused_time=at(50), refused_reason="SystemUUIDMismatch"),
        ),
    ),
    Row(
        "an Off from before the order was carried out is not a loss",
        "Firmware",
        status=status(power=replace(POWERED, state="Off", observed_time=at(-100))),
    ),
    Row(
        "a new image of the pool does not reset a boot that has joined",
        "Kubelet",
        pool=pool(image_ref="newer"),
        status=status(power=POWERED, join=JOINED),
    ),
    Row(
        "nor a Ready Node",
        "Ready",
        pool=pool(image_ref="newer"),
        status=status(power=POWERED, join=JOINED),
        node=node(),
    ),
]

SECOND = replace(ORDER, id="o2", reason="Unordered", ordered_time=at(9000), attempt=2, image_ref="newer")
NOT_CARRIED_OUT: dict[str, Any] = {
    "order": SECOND,
    "power": POWERED,
    "join": JOINED,
    "image_ref": "gpu-node-abababababab",
    "image_digest": DIGEST,
}

WITHDRAWING = [
    Row(
        "its BMC was away until the Node came back",
        "Ready",
        seconds=9100,
        status=status(**NOT_CARRIED_OUT),
        node=node(lease=9095),
    ),
    Row(
        "the Node came back and is not well",
        "NodeNotReady",
        seconds=9100,
        status=status(**NOT_CARRIED_OUT),
        node=node(False, lease=9095),
    ),
    Row(
        "the Node came back with a clock that is wrong",
        "NodeNotReady",
        seconds=9100,
        status=status(**NOT_CARRIED_OUT),
        node=seen_lease(9095, renewed=-3600),
    ),
    Row(
        "nobody pressed the button until the Node came back",
        "Ready",
        seconds=9100,
        spec=NO_BMC,
        status=status(**{**NOT_CARRIED_OUT, "power": None}),
        node=node(lease=9095),
    ),
]
