"""The command `provisioner` and kubectl's plugin `kubectl provision`.

Subcommands are imported when they are called: `provisioner crds` must not wait for Flask.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

import click
import structlog

from provisioner import __version__
from provisioner.api.machinery.errors import NeedsHuman, ProvisionerError
from provisioner.cli import printer
from provisioner.cli.core_dumps import forbid_core_dumps
from provisioner.cli.environment import SERVICES, name_variables, unknown_variables

log = structlog.get_logger(__name__)

COMMANDS: Final[Mapping[str, str]] = {
    "accept": "provisioner.cli.kubectl.accept:accept",
    "authorizer": "provisioner.cli.service.authorizer:authorizer",
    "boot": "provisioner.cli.boot.group:boot",
    "cache": "provisioner.cli.service.cache:cache",
    "control-plane-flags": "provisioner.cli.service.control_plane:control_plane_flags",
    "controller": "provisioner.cli.service.controller:controller",
    "crds": "provisioner.cli.service.manifests:crds",
    "image": "provisioner.cli.service.image:image",
    "infiniband": "provisioner.cli.service.infiniband:infiniband",
    "manifests": "provisioner.cli.service.manifests:manifests",
    "rack": "provisioner.cli.service.rack:rack",
    "reflector": "provisioner.cli.service.reflector:reflector",
    "restore": "provisioner.cli.restore.command:restore",
    "rollout": "provisioner.cli.service.rollout:rollout",
    "web": "provisioner.cli.service.web:web",
}

KUBECTL_COMMANDS: Final[Mapping[str, str]] = {
    "accept": "provisioner.cli.kubectl.accept:accept",
    "attestation": "provisioner.cli.kubectl.attestation_command:attestation",
    "cancel": "provisioner.cli.kubectl.condition_commands:cancel",
    "drain": "provisioner.cli.kubectl.request_commands:drain",
    "explain": "provisioner.cli.boot.explain_command:explain",
    "health": "provisioner.cli.fleet.health_command:health",
    "hold": "provisioner.cli.kubectl.condition_commands:hold",
    "move": "provisioner.cli.fleet.move_command:move",
    "power-cycle": "provisioner.cli.kubectl.request_commands:power_cycle",
    "reboot": "provisioner.cli.kubectl.request_commands:reboot",
    "reimage": "provisioner.cli.kubectl.request_commands:reimage",
    "release": "provisioner.cli.kubectl.condition_commands:release",
    "retry": "provisioner.cli.kubectl.condition_commands:retry",
    "rollout": "provisioner.cli.rollout.group:rollout",
    "shell": "provisioner.cli.kubectl.shell_command:shell",
    "status": "provisioner.cli.fleet.status_command:status",
    "trace": "provisioner.cli.boot.trace_command:trace",
    "vpc": "provisioner.cli.vpc.group:vpc",
    "why": "provisioner.cli.why.command:why",
}


class LazyGroup(click.Group):
    """A group whose commands are named by `module:attribute` and imported on use.

    services: those whose options may be given as environment variables, too.
    """

    def __init__(self, *args: Any, targets: Mapping[str, str], services: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._targets = targets
        self._services = services

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _shown_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _shown_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._targets, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self._targets.get(cmd_name)
        if target is None:
            return super().get_command(ctx, cmd_name)
        module, attribute = target.split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - a wrong table entry is a programming error
        if cmd_name in self._services:
            name_variables(command, cmd_name)
        return command


@contextmanager
def _shown_errors() -> Iterator[None]:
    """What click itself says of a command line repeats parts of it, which may have been pasted."""
    try:
        yield
    except click.ClickException as error:
        object.__setattr__(error, "message", printer.lines_of(error.message))
        raise


def _show_values(logger: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """A log on a terminal repeats what others wrote, too."""
    return {key: printer.lines_of(value) if isinstance(value, str) else value for key, value in event.items()}


def configure_logging(*, json: bool, verbose: bool) -> None:
    """Log to stderr: lines for people, or JSON for a collector."""
    renderer: Any = (
        structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _show_values,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


@click.group(
    cls=LazyGroup,
    targets=COMMANDS,
    services=SERVICES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="provisioner")
@click.option(
    "--log-json", is_flag=True, envvar="PROVISIONER_LOG_JSON", show_envvar=True, help="Log as JSON, a line each."
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    envvar="PROVISIONER_VERBOSE",
    show_envvar=True,
    help="Log what is done in detail.",
)
@click.pass_context
def provisioner(ctx: click.Context, log_json: bool, verbose: bool) -> None:
    """Turn servers without an operating system into Kubernetes nodes.

    \b
    Set up:    control-plane-flags, manifests, crds, image keygen, image build, image publish
    Serve:     boot (on each boot host), cache (in a rack), controller, web, authorizer (anywhere)
    Operate:   rack register, accept, and kubectl (the same as kubectl provision)
    See:       boot explain, boot trace, boot replay (why a machine does not boot)
    Later:     crds migrate, image keys, restore, rack retire
    """
    configure_logging(json=log_json, verbose=verbose)
    if (service := ctx.invoked_subcommand) in SERVICES:
        command = provisioner.get_command(ctx, service)
        for name in unknown_variables(command, service) if command is not None else ():
            log.warning("environment variable names no option", variable=name, remedy=f"provisioner {service} --help")


@click.group(
    cls=LazyGroup,
    targets=KUBECTL_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
def kubectl() -> None:
    """Ask for what shall be done to nodes, and see what is done.

    \b
    Ask:       reboot, reimage, power-cycle, drain, hold, move
    Withdraw:  release, cancel
    See:       status, why, health (faults), explain (what it would boot), trace (its boot, live)
    Pools:     rollout start, status, pause, resume, undo, history, plan
    Tenants:   vpc attach, detach, quarantine, release, status, why
    TPMs:      attestation approve, forget
    Other:     retry (checks before use), accept (new servers), shell (break-glass)

    Flags of kubectl (--context, --as, --kubeconfig) come after the command: kubectl hands none to a plugin. Completion:
    put kubectl_complete-provision of this project on the PATH.
    """


provisioner.add_command(kubectl)


def run_group(group: click.Group, name: str) -> None:
    """Run the command line of this process; what a person can do about an error is said after it."""
    forbid_core_dumps()
    try:
        group.main(sys.argv[1:], prog_name=name)
    except NeedsHuman as error:
        printer.error(Exception.__str__(error), f"try: {error.hint}")
        sys.exit(1)
    except ProvisionerError as error:
        printer.error(str(error))
        sys.exit(1)


def main() -> None:
    """Entry point of `provisioner`."""
    run_group(provisioner, "provisioner")


def kubectl_plugin() -> None:
    """Entry point of `kubectl-provision`, which kubectl finds on the PATH."""
    configure_logging(json=False, verbose=False)
    run_group(kubectl, "kubectl provision")
