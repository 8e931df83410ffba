"""Where the ordered boot of a server is, what it waits for, when it is late there, and when it is given up. Pure.

The stages between the BMC's word and the join are heard of in DHCP and in reports, which anybody can send. They choose
the words and nothing else. A boot is given up by what is proven: so long after the BMC accepted its order as all stages
up to the join may take together, or so long after the join as the kubelet may take. So no report gives a boot more time
than it has, and none ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.boot_stage import WAITS_FOR, BootStage
from provisioner.api.servers.boot_timeline import PHASE_NAMES, stage_moments
from provisioner.api.servers.server import BootOrder, Server
from provisioner.boot.orders.facts import OrderFacts
from provisioner.boot.orders.requests import belongs_to, describe_request
from provisioner.rules.boot_order import has_fetched, is_by_agent, is_settled
from provisioner.rules.stage_timeouts import stage_timeout_seconds, time_to_join


@dataclass(frozen=True, kw_only=True)
class OrderedStage:
    """Where the ordered boot is, as far as anybody said.

    late: when the stage has lasted longer than it may, which is said and changes nothing; None where nobody can say.
    deadline: when the boot is given up; None if it never is.
    """

    stage: BootStage
    began: datetime
    late: datetime | None
    deadline: datetime | None


def current_stage(server: Server, pool: NodePool | None) -> OrderedStage | None:
    """The stage of the current order; None without an order."""
    order = server.status.order
    if order is None:
        return None
    stage, began = stage_moments(server.status)[-1]
    seconds = stage_timeout_seconds(stage, pool)
    # How long a hand at the power button takes, nobody can say; for the agent the Maintenance waits.
    if stage == "Ordered" and (server.spec.bmc is None or is_by_agent(order)):
        seconds = None
    late = began + timedelta(seconds=seconds) if seconds is not None else None
    return OrderedStage(stage=stage, began=began, late=late, deadline=_deadline(server, order, pool))


def waiting_words(facts: OrderFacts, stage: OrderedStage) -> str:
    """What a boot under way waits for, since when and until when, and what is known that may explain it."""
    server, node = facts.server, facts.node
    waits_for = _ordered_waits_for(facts) if stage.stage == "Ordered" else WAITS_FOR[stage.stage]
    words = f"{PHASE_NAMES[stage.stage]} since {rfc3339(stage.began)}: waits for {waits_for}"
    until = min((moment for moment in (stage.late, stage.deadline) if moment is not None), default=None)
    if until is not None and not is_abandoned(facts):
        words += f", until {rfc3339(until)} at most"
    order = server.status.order
    if order is not None and order.reason == "Requested" and order.maintenance_ref is not None:
        words += f"; {describe_request(order)}"
    if stage.stage == "Kubelet" and node is not None and node.ready and node.boot_id is not None:
        words += f"; Node '{node.name}' is Ready, but reports another boot ({node.boot_id})"
    elif stage.stage == "Kubelet" and node is not None and node.ready_message:
        words += f"; Node '{node.name}' says: {node.ready_message}"
    progress = server.status.progress
    if progress is not None and progress.message and progress.stage == stage.stage:
        words += f"; the machine says: {progress.message}"
    refused = server.status.join.refused_reason if server.status.join is not None else None
    if stage.stage == "Token" and refused is not None:
        words += f"; its last request was refused ({refused}), see its condition Joined"
    return words


def is_abandoned(facts: OrderFacts) -> bool:
    """Whether a Maintenance asked for the boot, and is over: neither agent nor BMC is told, whatever is reported."""
    server, order, power = facts.server, facts.server.status.order, facts.server.status.power
    if order is None or has_fetched(server) or belongs_to(order, facts.maintenance):
        return False
    is_accepted = power is not None and power.order_id == order.id
    return is_by_agent(order) or (order.reason == "Requested" and not is_accepted)


def _ordered_waits_for(facts: OrderFacts) -> str:
    """Who is to carry the order out."""
    server, order = facts.server, facts.server.status.order
    if is_abandoned(facts):
        return "nobody any more: its Maintenance is over"
    if order is not None and is_by_agent(order):
        if order.method == "Kexec":
            return "the agent on it to start the new image by kexec"
        return "the agent on it to reboot it"
    if server.spec.bmc is None:
        return "somebody to press its power button, as it has no BMC (spec.bmc)"
    return WAITS_FOR["Ordered"]


def describe_delay(server: Server, stage: OrderedStage) -> str:
    """What is waited for longer than it may take, since when, and what the machine last said."""
    return (
        f"{PHASE_NAMES[stage.stage]} has lasted since {rfc3339(stage.began)}, longer than it may; "
        f"waited for {WAITS_FOR[stage.stage]}{_last_words(server)}"
    )


def describe_time_out(server: Server, stage: OrderedStage) -> str:
    """Why the boot is given up: how far it came, and what the machine last said."""
    if has_fetched(server):
        return describe_delay(server, stage)
    power = server.status.power
    since = f" since {power.order_time}" if power is not None and power.order_time is not None else ""
    return (
        f"the boot has lasted{since}, longer than all its stages may together; the last that was heard of is "
        f"{PHASE_NAMES[stage.stage]}, at {rfc3339(stage.began)}: "
        f"waited for {WAITS_FOR[stage.stage]}{_last_words(server)}"
    )


def _last_words(server: Server) -> str:
    progress = server.status.progress
    return f"; the machine said: {progress.message}" if progress is not None and progress.message else ""


def _deadline(server: Server, order: BootOrder, pool: NodePool | None) -> datetime | None:
    """By the join service's and the BMC's word alone. Where neither is there yet, nothing is given up: the BMC is told
    until it accepts; for the agent the Maintenance waits, which tries another method; a hand takes its time."""
    power, join = server.status.power, server.status.join
    if is_settled(server):
        return None
    if join is not None and join.order_id == order.id and join.fetched_time is not None:
        return parse_time(join.fetched_time) + timedelta(seconds=stage_timeout_seconds("Kubelet", pool) or 0)
    if power is None or power.order_id != order.id or power.order_time is None:
        return None
    return parse_time(power.order_time) + time_to_join(pool)
