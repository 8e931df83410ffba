"""What the request commands share: their options, and the way from a wish to requests that are filed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click

from provisioner.api import Image
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.wording import quantity, some
from provisioner.api.nodes.maintenance import MaintenanceAction, MaintenancePolicy, Requestor
from provisioner.cli import printer
from provisioner.cli.kubectl.completion import complete_image, complete_pool, complete_server
from provisioner.cli.kubectl.connection import connection_options, find_named
from provisioner.cli.kubectl.failing import EXIT_CODES, WAIT_EXIT_CODES, BadInput, exit_codes
from provisioner.cli.kubectl.filing import Filed, file_request, requestor_name
from provisioner.cli.kubectl.moments import read_deadline, read_span
from provisioner.cli.kubectl.printing import output_option, print_in_form, table
from provisioner.cli.kubectl.targets import ServerTarget, find_targets, selection_of
from provisioner.cli.options import F, with_options
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import PODS
from provisioner.jobs.pods import is_evictable, key_of, trim_pod

MAX_MESSAGE: Final = 1024
NAMED_NODES: Final = 20
NAMED_PODS: Final = 8
POLICY_CHOICES: Final = ("WhenIdle", "Deadline", "Now")
VERBS: Final[dict[MaintenanceAction, str]] = {
    "Reboot": "reboot",
    "Reimage": "reimage",
    "PowerCycle": "power cycle",
    "Drain": "drain",
}


class KubectlCommand(click.Command):
    """Takes `--dry-run` and `--dry-run=server`, joined by `=` as kubectl has it; its help ends with exit codes, and it
    with one of them."""

    def invoke(self, ctx: click.Context) -> Any:
        with exit_codes():
            return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        given = ["--dry-run=server" if word == "--dry-run" else word for word in args[:end]]
        return super().parse_args(ctx, given + args[end:])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        waits = any(parameter.name == "wait" for parameter in self.params)
        self.epilog = EXIT_CODES + WAIT_EXIT_CODES if waits else EXIT_CODES
        super().format_epilog(ctx, formatter)


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """What is asked of every server that is meant."""

    action: MaintenanceAction
    policy: MaintenancePolicy
    deadline: datetime | None
    image: str | None
    message: str | None


target_options: Final = with_options(
    connection_options,
    click.option("--all", "everything", is_flag=True, help="All nodes; a command that changes them asks first."),
    click.option("--pool", metavar="NAME", help="Nodes of that NodePool.", shell_complete=complete_pool),
    click.option("-l", "--selector", metavar="LABELS", help="Nodes with these labels, as kubectl selects."),
    click.argument("nodes", nargs=-1, metavar="[NODE...]", shell_complete=complete_server),
)
"""Which nodes, and how to reach the cluster; read with `selection_of` and `connection_of`."""

dry_run_option: Final = click.option(
    "--dry-run",
    type=click.Choice(["none", "server"]),
    default="none",
    help="Write nothing; the API server says whether it would take it.",
)
yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask before --all.")


def wait_options(words: str, longest: str) -> Callable[[F], F]:
    """`--wait` and `--timeout`, which `read_wait` reads. longest: an example of how long one may want to wait."""
    return with_options(
        click.option("--wait", is_flag=True, help=words),
        click.option("--timeout", metavar="SPAN", help=f"How long to --wait, such as {longest} [without end]."),
    )


def read_wait(
    options: dict[str, Any], in_a_dry_run: str = "a dry run has nothing to --wait for: leave one of them out"
) -> tuple[bool, float | None]:
    """Whether to wait, and how many seconds at most; taken out of `options`. in_a_dry_run: why not there.

    Raises: click.UsageError, BadInput.
    """
    wait, timeout = options.pop("wait", False), options.pop("timeout", None)
    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait: give both")
    if wait and options.get("output") is not None:
        raise click.UsageError("--wait tells what happens in words: leave -o out")
    if wait and options.get("dry_run", "none") != "none":
        raise click.UsageError(in_a_dry_run)
    return wait, read_span(timeout, "--timeout").total_seconds() if timeout is not None else None


def dry_run_note(dry_run: str) -> str:
    """What follows the words about something that was not written."""
    return f" ({dry_run} dry run)" if dry_run != "none" else ""


def request_options(*, image: bool) -> Callable[[F], F]:
    """Policy, words, and what to do beside filing the request."""
    image_option = click.option(
        "--image", metavar="NAME", help="Image to boot once [the pool's].", shell_complete=complete_image
    )
    return with_options(
        target_options,
        *((image_option,) if image else ()),
        click.option("--when-idle", is_flag=True, help="Interrupt no job; the default."),
        click.option("--deadline", metavar="WHEN", help="Let jobs run until then: 2h, 1d, or RFC 3339."),
        click.option("--now", is_flag=True, help="End running jobs at once; who may is said by RBAC."),
        click.option(
            "--policy",
            type=click.Choice(POLICY_CHOICES),
            help="As the three flags above, in one word; Deadline with --deadline.",
        ),
        click.option("-m", "--reason", "message", metavar="WORDS", help="Why, in words. It is kept on record."),
        yes_option,
        dry_run_option,
        output_option("json", "yaml", "wide", "name"),
        wait_options("Wait until it is done, and tell what happens.", "30m"),
    )


def read_ask(action: MaintenanceAction, options: dict[str, Any], now: datetime) -> RequestOptions:
    """What the options ask for; they are taken out of `options`. Raises: click.UsageError, BadInput."""
    image = options.pop("image", None)
    message = options.pop("message")
    if message is not None and len(message) > MAX_MESSAGE:
        raise BadInput(f"--reason has {len(message)} characters", hint=f"use at most {MAX_MESSAGE}")
    policy = options.pop("policy")
    when_idle, until, at_once = options.pop("when_idle"), options.pop("deadline"), options.pop("now")
    given: tuple[tuple[bool, str, MaintenancePolicy], ...] = (
        (policy is not None, f"--policy {policy}", policy),
        (when_idle, "--when-idle", "WhenIdle"),
        (until is not None, "--deadline", "Deadline"),
        (at_once, "--now", "Now"),
    )
    said = {flag: meant for is_given, flag, meant in given if is_given}
    if len(set(said.values())) > 1:
        raise click.UsageError(f"{' and '.join(said)} contradict each other: give one of them")
    chosen: MaintenancePolicy = next(iter(said.values()), "WhenIdle")
    if chosen == "Deadline" and until is None:
        raise click.UsageError("policy Deadline needs --deadline: 2h, 1d, or RFC 3339")
    deadline = read_deadline(until, now) if until is not None else None
    return RequestOptions(action=action, policy=chosen, deadline=deadline, image=image, message=message or None)


def check_ask(cluster: Cluster, ask: RequestOptions, targets: list[ServerTarget]) -> None:
    """Raises: BadInput if the request can be carried out on one of them never."""
    wrong = []
    if ask.image is not None:
        image = find_named(cluster, Image, ask.image)
        if image is None:
            raise BadInput(f"there is no Image {ask.image}", hint="kubectl get images")
        others = [t.name for t in targets if t.server.spec.architecture != image.spec.architecture]
        if others:
            wrong.append(f"Image {image.name} is for {image.spec.architecture}, and {some(others)} is not")
    if ask.action == "PowerCycle":
        without = [t.name for t in targets if t.server.spec.bmc is None]
        if without:
            wrong.append(f"{some(without)} has no BMC (spec.bmc), so nobody can cut its power: reboot it instead")
    if wrong:
        raise BadInput("; ".join(wrong), hint="nothing was asked for; correct the command and run it again")


def confirm(targets: list[ServerTarget], words: str, *, yes: bool, everything: bool) -> None:
    """Ask a person before everything is disturbed. Raises: BadInput where nobody can be asked, or who says no."""
    if yes or not everything:
        return
    question = f"{words} of all {len(targets)} nodes ({some([t.name for t in targets])})?"
    ask_person(question, BadInput("nothing was asked for", hint="name the nodes that are meant"))


def ask_person(question: str, refusal: BadInput) -> None:
    """Raises: BadInput where nobody can be asked, `refusal` of who says no."""
    if not sys.stdin.isatty():
        raise BadInput(f"{question} nobody can be asked here", hint="give --yes")
    if not printer.confirm(question):
        raise refusal


def tell_what_ends(cluster: Cluster, targets: list[ServerTarget]) -> None:
    """Name the pods that a request under Now ends, before it is made: some of each of the first nodes."""
    for target in targets[:NAMED_NODES]:
        try:
            found = cluster.list(PODS, field_selector=f"spec.nodeName={target.name}", trim=trim_pod).items
        except Refused:
            printer.say("Now ends what runs there; its pods may not be listed with these credentials", err=True)
            return
        pods = sorted(key_of(pod) for pod in found if is_evictable(pod))
        if pods:
            count = quantity(len(pods), "pod ends", "pods end")
            printer.say(f"node/{target.name} {count} now: {some(pods, NAMED_PODS)}", err=True)
    if len(targets) > NAMED_NODES:
        printer.say(f"and what runs on {quantity(len(targets) - NAMED_NODES, 'more node')}", err=True)


def requestor_of(ask: RequestOptions, user: str, now: datetime) -> Requestor:
    """The entry of a Maintenance by which `user` asks."""
    return Requestor(
        name=requestor_name(user),
        user=user,
        action=ask.action,
        policy=ask.policy,
        deadline_time=rfc3339(ask.deadline) if ask.deadline else None,
        image_ref=ask.image,
        message=ask.message,
        requested_time=rfc3339(now),
    )


def file_all(
    cluster: Cluster, ask: RequestOptions, targets: list[ServerTarget], now: datetime, dry_run: str
) -> list[Filed]:
    """Every request, first as a dry run of all of them, so that a refusal of one comes before any is written."""
    user = cluster.ask_who_i_am()
    wanted = requestor_of(ask, user, now)
    answers = [file_request(cluster, target.name, wanted, dry_run=True) for target in targets]
    if dry_run != "none":
        return answers
    return [file_request(cluster, target.name, wanted) for target in targets]


def show_filed(filed: list[Filed], form: str | None, dry_run: str) -> None:
    """Say what was asked for."""
    names = [f"maintenance.provisioner.dev/{f.maintenance.name}" for f in filed]
    if print_in_form(form, lambda: [encode(f.maintenance) for f in filed], names):
        return
    if form == "wide":
        rows = [
            (f.server, f.maintenance.name, f.requestor.action, f.requestor.policy, f.requestor.deadline_time,
             f.requestor.image_ref, f.maintenance.status.phase, f.requestor.name)
            for f in filed
        ]  # fmt: skip
        header = ("NODE", "MAINTENANCE", "ACTION", "POLICY", "DEADLINE", "IMAGE", "PHASE", "REQUESTOR")
        printer.show(table(header, rows))
    else:
        for f in filed:
            printer.say(f"node/{f.server} {_words(f)}{dry_run_note(dry_run)}")


def _words(f: Filed) -> str:
    policy = {"WhenIdle": "when it is idle", "Now": "now"}.get(
        f.requestor.policy, f"by {f.requestor.deadline_time}, or when it is idle"
    )
    image = f" to Image {f.requestor.image_ref}" if f.requestor.image_ref else ""
    joined = " (others ask for a disturbance, too; it is done once)" if f.joined else ""
    return f"{VERBS[f.requestor.action]}{image} requested, {policy}: Maintenance {f.maintenance.name}{joined}"


def ask_for(action: MaintenanceAction, options: dict[str, Any], cluster: Cluster) -> list[Filed]:
    """From the command line to requests that are filed; nothing is written if one of them is impossible or refused."""
    now = datetime.now(UTC)
    ask, wish = read_ask(action, options, now), selection_of(options)
    targets = find_targets(cluster, wish, for_requests=True, boots=action != "Drain")
    check_ask(cluster, ask, targets)
    dry_run, yes = options.pop("dry_run"), options.pop("yes")
    if ask.policy == "Now":
        tell_what_ends(cluster, targets)
    if dry_run == "none":
        confirm(targets, f"{VERBS[action]} ({ask.policy})", yes=yes, everything=wish.everything)
    filed = file_all(cluster, ask, targets, now, dry_run)
    show_filed(filed, options.pop("output"), dry_run)
    return filed
