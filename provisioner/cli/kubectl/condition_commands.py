"""`kubectl provision hold|release|retry|cancel NODE…`: a person's word about a node, and what takes it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.nodes.contract import (
    HOLD_REQUESTED,
    VERIFICATION_RELEASE_REQUESTED,
    VERIFICATION_RETRY_REQUESTED,
)
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import (
    KubectlCommand,
    confirm,
    dry_run_note,
    dry_run_option,
    target_options,
    yes_option,
)
from provisioner.cli.kubectl.connection import connection_of
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.kubectl.filing import own_entries, read_maintenances, withdraw
from provisioner.cli.kubectl.node_requests import DISTURBANCES, RELEASED, signed, true_conditions, write_condition
from provisioner.cli.kubectl.printing import output_option, print_in_form
from provisioner.cli.kubectl.targets import ServerTarget, find_targets, selection_of
from provisioner.cli.options import with_options
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES


@dataclass(frozen=True, kw_only=True)
class ConditionWrite:
    """One thing to write. `write(dry_run)`: does it, or asks whether it could be done."""

    server: str
    words: str
    write: Callable[[bool], object]


_message_option = click.option("-m", "--reason", "message", metavar="WORDS", help="Why, in words.")
_common_options = with_options(yes_option, dry_run_option, output_option("json", "yaml", "name"))

Plan = Callable[[Cluster, ServerTarget, str, datetime], list[ConditionWrite]]


def _carry_out(options: dict[str, Any], words: str, plan: Plan) -> None:
    """Plan for all, ask the API server about all, then do it."""
    cluster = connection_of(options).open()
    wish = selection_of(options)
    targets = find_targets(cluster, wish, for_requests=True)
    dry_run = options["dry_run"]
    if dry_run == "none":
        confirm(targets, words, yes=options["yes"], everything=wish.everything)
    user, now = cluster.ask_who_i_am(), datetime.now(UTC)
    steps = [step for target in targets for step in plan(cluster, target, user, now)]
    for step in steps:
        step.write(True)
    if dry_run == "none":
        for step in steps:
            step.write(False)
    _show(cluster, steps, targets, options["output"], dry_run)


def _show(
    cluster: Cluster, steps: list[ConditionWrite], targets: list[ServerTarget], form: str | None, dry_run: str
) -> None:
    names = [f"node/{name}" for name in dict.fromkeys(step.server for step in steps)]
    if not print_in_form(form, lambda: [cluster.get(NODES, target.name) for target in targets], names):
        printer.say(*(f"node/{step.server} {step.words}{dry_run_note(dry_run)}" for step in steps))


def _set(
    cluster: Cluster, name: str, type_: str, reason: str, message: str, now: datetime, words: str
) -> ConditionWrite:
    return ConditionWrite(
        server=name,
        words=words,
        write=lambda dry: write_condition(cluster, name, type_, "True", reason, message, now, dry_run=dry),
    )


def _clear(cluster: Cluster, name: str, type_: str, user: str, now: datetime) -> ConditionWrite:
    words = f"withdrawn by {user}"
    short = type_.removeprefix("provisioner.dev/")
    return ConditionWrite(
        server=name,
        words=f"condition {short} withdrawn",
        write=lambda dry: write_condition(cluster, name, type_, "False", "Withdrawn", words, now, dry_run=dry),
    )


def _withdrawals(cluster: Cluster, target: ServerTarget, user: str, actions: tuple[str, ...]) -> list[ConditionWrite]:
    return [
        ConditionWrite(
            server=target.name,
            words=f"{entry.action} withdrawn from Maintenance {m.name}"
            + (", which has begun to boot and goes on to its end" if m.status.reboot is not None else ""),
            write=lambda dry, m=m, entry=entry: withdraw(cluster, m, entry.name, dry_run=dry),  # type: ignore[misc]
        )
        for m, entry in own_entries(read_maintenances(cluster, target.name), user)
        if entry.action in actions
    ]


@click.command("hold", cls=KubectlCommand, short_help="Keep nodes as they are, undisturbed.")
@target_options
@_message_option
@_common_options
def hold(**options: Any) -> None:
    """Keep nodes as they are: no new job comes, and nothing disturbs them, until they are released.

    What runs goes on. A reboot that has begun goes on to its end.

    \b
    Examples:
      kubectl provision hold r01-u07 -m 'I look at its fan'
      kubectl provision release r01-u07
    """
    words = options.get("message")

    def plan(cluster: Cluster, target: ServerTarget, user: str, now: datetime) -> list[ConditionWrite]:
        message = signed(words, user, "held")
        return [_set(cluster, target.name, HOLD_REQUESTED, "Held", message, now, "held")]

    _carry_out(options, "hold", plan)


@click.command("retry", cls=KubectlCommand, short_help="Check nodes once more that failed their checks.")
@target_options
@_message_option
@_common_options
def retry(**options: Any) -> None:
    """Check nodes once more that failed the checks before use.

    \b
    Example:
      kubectl provision retry r01-u07 -m 'the cable is in'
    """
    words = options.get("message")

    def plan(cluster: Cluster, target: ServerTarget, user: str, now: datetime) -> list[ConditionWrite]:
        _require_unverified(target)
        message = signed(words, user, "check again")
        return [_set(cluster, target.name, VERIFICATION_RETRY_REQUESTED, "Retry", message, now, "is checked again")]

    _carry_out(options, "retry", plan)


@click.command("release", cls=KubectlCommand, short_help="End a hold or a drain; or let in as it is.")
@target_options
@_message_option
@_common_options
@click.option(
    "--verification", is_flag=True, help="Let the node in although checks failed, for this boot; needs --reason."
)
def release(**options: Any) -> None:
    """Give nodes back: end their hold, and withdraw your drain and one that a condition asks for.

    Somebody else's drain is theirs to release. What a Maintenance holds for other reasons goes on.

    \b
    Examples:
      kubectl provision release r01-u07
      kubectl provision release r01-u07 --verification -m 'port 2 is not cabled yet, Bob knows'
    """
    verification, words = options.pop("verification"), options.get("message")
    if verification and not words:
        raise click.UsageError("--verification needs --reason: who answers for it, and why")

    def plan(cluster: Cluster, target: ServerTarget, user: str, now: datetime) -> list[ConditionWrite]:
        if verification:
            _require_unverified(target)
            message, type_ = signed(words, user, ""), VERIFICATION_RELEASE_REQUESTED
            return [_set(cluster, target.name, type_, "Release", message, now, "is let in although checks failed")]
        steps = [_clear(cluster, target.name, type_, user, now) for type_ in true_conditions(target.node, RELEASED)]
        steps += _withdrawals(cluster, target, user, ("Drain",))
        if not steps:
            others = _others(cluster, target, user, ("Drain",))
            raise BadInput(
                f"node {target.name} is neither held nor drained by {user}{others}",
                hint=f"kubectl provision why {target.name}; kubectl provision cancel {target.name} withdraws a reboot",
            )
        return steps

    _carry_out(options, "release", plan)


@click.command("cancel", cls=KubectlCommand, short_help="Withdraw your requests.")
@target_options
@_common_options
def cancel(**options: Any) -> None:
    """Withdraw your requests, and those that conditions make. What has begun to boot goes on to its end.

    \b
    Example:
      kubectl provision cancel r01-u07
    """

    def plan(cluster: Cluster, target: ServerTarget, user: str, now: datetime) -> list[ConditionWrite]:
        types = (*DISTURBANCES, *RELEASED[:1])
        steps = [_clear(cluster, target.name, type_, user, now) for type_ in true_conditions(target.node, types)]
        steps += _withdrawals(cluster, target, user, ("Drain", "Reboot", "Reimage", "PowerCycle"))
        if not steps:
            others = _others(cluster, target, user, ("Drain", "Reboot", "Reimage", "PowerCycle"))
            raise BadInput(
                f"nothing is requested of node {target.name} by {user} or by a condition{others}",
                hint=f"kubectl provision why {target.name}",
            )
        return steps

    _carry_out(options, "cancel what is requested", plan)


def _others(cluster: Cluster, target: ServerTarget, user: str, actions: tuple[str, ...]) -> str:
    """Who else wants something of it: theirs is not touched."""
    from provisioner.api.nodes.maintenance import FINAL_PHASES

    found = [
        (r.user or r.name, m.name)
        for m in read_maintenances(cluster, target.name)
        if m.status.phase not in FINAL_PHASES
        for r in m.spec.requestors
        if r.user != user and r.action in actions
    ]
    if not found:
        return ""
    names, maintenances = (list(dict.fromkeys(column)) for column in zip(*found, strict=True))
    return (
        f"; {', '.join(names)} asked for something, which is theirs to withdraw; an administrator ends it by "
        f"kubectl delete maintenance {' '.join(maintenances)}"
    )


def _require_unverified(target: ServerTarget) -> None:
    verified = find_condition(target.server.status.conditions, "Verified")
    if verified is not None and verified.status == "True":
        raise BadInput(
            f"node {target.name} has passed its checks: {verified.message}",
            hint="to have it booted and checked anew: kubectl provision reboot",
        )
