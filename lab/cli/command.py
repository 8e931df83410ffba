"""`bin/lab`: a rack on one machine, for a demo, for the tests, for trying things out."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Final

import click
import structlog

from lab.cli.parts import (
    RECIPES,
    Report,
    build_demo_image,
    build_dpu_image,
    daemon_arguments,
    demo_state,
    describe_demo_rack,
    lab_environment,
    obtain_parts,
    require_root,
    run_step,
)
from lab.cli.steps import STEPS, name_option
from lab.cli.vpc import VPC_COMMANDS, clean
from lab.demo.state import DemoState
from provisioner.api.machinery.wording import quantity
from provisioner.cli import printer
from provisioner.cli.main import configure_logging, run_group
from provisioner.cli.progress import Progress

FOR_PEOPLE: Final = ("up", "shell", "reimage", "rollout", "vpc", "down")
"""Commands that report in lines of their own; their parts' logs would stand between."""


@click.group("lab", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("-v", "--verbose", is_flag=True, help="Log what is done in detail.")
@click.pass_context
def lab(context: click.Context, verbose: bool) -> None:
    """A virtual rack on this machine: control plane, boot service, BMCs and servers in a network namespace."""
    configure_logging(json=False, verbose=verbose)
    if context.invoked_subcommand in FOR_PEOPLE and not verbose:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


@lab.command("up")
@name_option
@click.option("--memory", "memory_mib", default=1024, show_default=True, help="Memory of each server in MiB.")
@click.option(
    "--timeout", "timeout_seconds", default=900.0, show_default=True, help="How long the boots may take, in seconds."
)
@click.option(
    "--servers",
    default="UEFI,UEFI",
    show_default=True,
    help="A server by its firmware: BIOS, UEFI, or PlainUEFI without a TPM; or DPU, in the one before; or ProxyDPU, "
    "through which that one boots.",
)
@click.option("--http-boot", is_flag=True, help="Boot UEFI servers by UEFI HTTP boot, the URL set through the BMC.")
@click.option(
    "--recipe", default=RECIPES["gpu"], show_default=True, help="Recipe of the servers' image, below images/."
)
def up(name: str, memory_mib: int, timeout_seconds: float, servers: str, http_boot: bool, recipe: str) -> None:
    """Start the lab and boot its servers until they are Ready nodes. What a killed lab left is cleaned first."""
    from lab.demo import up as demo_up
    from lab.rack_description import DPU_KINDS
    from provisioner.image.finished.store import part_files

    require_root()
    state = demo_state(name)
    with Progress() as progress:
        report = Report(progress)
        report.begin("ending what another lab left")
        demo_up.clean(state)
        tools, binaries = obtain_parts(state, report)
        built = build_demo_image(state, binaries.kubelet, report, recipe_name=recipe)
        if set(DPU_KINDS) & set(servers.split(",")):
            build_dpu_image(state, report)
        report.begin("trying KVM")
        rack = describe_demo_rack(state, tools, memory_mib, servers, http_boot, part_files(built.folder)["kernel"])
        words = {"kvm": "under KVM", "tcg": "emulated: KVM does not boot Linux on this machine"}[rack.accelerator]
        report.line("machines", f"{quantity(len(rack.description.servers), 'server')} with {memory_mib} MiB, {words}")
        report.begin("starting the control plane")
        state.fresh_directory()
        rack.prepare(demo_up.now())
        demo_up.create_network(state, rack)
        seconds = demo_up.start_daemon(state, daemon_arguments(memory_mib, servers, http_boot))
        report.line(
            "control plane", f"kube-apiserver {binaries.version}, etcd, controller-manager, scheduler", "ready", seconds
        )
        report.begin("publishing the image and registering the rack")
        for pool in state.pools():
            proves = all(server.machine.has_tpm for server in rack.description.servers)
            attestation = "Required" if proves else "Optional"
            run_step(state, "publish", name, f"--pool={pool}", f"--attestation={attestation}")
        run_step(state, "register", name, *daemon_arguments(memory_mib, servers, http_boot))
        servers_of = f"{rack.description.name}: {quantity(len(rack.description.servers), 'server')}"
        report.line("rack", f"{servers_of} registered, powered on through their BMCs")
    run_step(state, "follow", name, f"--timeout={timeout_seconds}", f"--servers={servers}", show=True)
    printer.say("", "next: make demo-shell (kubectl on PATH) · make demo-rollout · make demo-reimage · make demo-down")


@lab.command("shell")
@name_option
@click.argument("command", nargs=-1)
def shell(name: str, command: tuple[str, ...]) -> None:
    """Open a shell in the lab's network namespace, with kubectl and provisioner on its PATH; or run a COMMAND there."""
    from lab.demo import up as demo_up
    from lab.network import LabNetwork

    state = demo_state(name)
    demo_up.require_running(state)
    argv = LabNetwork(name).command(command or (os.environ.get("SHELL", "/bin/bash"),))
    os.execvpe(argv[0], argv, lab_environment(state))  # noqa: S606 - becoming the shell is the point


@lab.command("reimage")
@name_option
@click.option("--server", default="r01-u02", show_default=True, help="Server to bring back on another image.")
@click.option(
    "--by",
    type=click.Choice(["kexec", "power-cycle"]),
    default="kexec",
    show_default=True,
    help="By condition ReimageRequested, whose first path is kexec, or by PowerCycleRequested.",
)
@click.option("--job-seconds", default=30, show_default=True, help="How long the job runs that is waited for.")
@click.option(
    "--timeout", "timeout_seconds", default=600.0, show_default=True, help="How long it may take, in seconds."
)
def reimage(name: str, server: str, by: str, job_seconds: int, timeout_seconds: float) -> None:
    """Build another image, run a job on a node and ask for the image, this once, when the node is idle."""
    from lab.demo import up as demo_up

    state = demo_state(name)
    demo_up.require_running(state)
    image = _publish_another_image(state, name)
    arguments = [f"--server={server}", f"--image={image}", f"--by={by}"]
    arguments += [f"--job-seconds={job_seconds}", f"--timeout={timeout_seconds}"]
    run_step(state, "reimage-node", name, *arguments, show=True)


@lab.command("rollout")
@name_option
@click.option("--server", default="r01-u02", show_default=True, help="Server on which a job runs meanwhile.")
@click.option("--job-seconds", default=90, show_default=True, help="How long the job runs that is waited for.")
@click.option(
    "--timeout", "timeout_seconds", default=900.0, show_default=True, help="How long it may take, in seconds."
)
def rollout(name: str, server: str, job_seconds: int, timeout_seconds: float) -> None:
    """Build another image, run a job on a node, and move the pool to the image: watch the servers follow."""
    from lab.demo import up as demo_up

    state = demo_state(name)
    demo_up.require_running(state)
    image = _publish_another_image(state, name)
    arguments = [f"--server={server}", f"--image={image}", f"--job-seconds={job_seconds}"]
    run_step(state, "roll-out", name, *arguments, f"--timeout={timeout_seconds}", show=True)


@lab.command("another-image", hidden=True)
@name_option
@click.option("--argument", "arguments", multiple=True, help="Further kernel argument of it, such as mem=800M.")
def another_image(name: str, arguments: tuple[str, ...]) -> None:
    """Build and publish another image of the same content, and print its name. Nobody boots it yet."""
    from lab.demo import up as demo_up

    state = demo_state(name)
    demo_up.require_running(state)
    printer.say(_publish_another_image(state, name, arguments))


def _publish_another_image(state: DemoState, name: str, arguments: tuple[str, ...] = ()) -> str:
    """Another image of the same content, by the name of its Image. The next one is made of the first again."""
    from lab.demo.another_image import make_another_image
    from provisioner.image.finished.sign import read_secret_key

    record = state.image_record("gpu")
    first, key = Path(record.read_text()), read_secret_key(state.keys / "image.sec")
    made = make_another_image(first, state.image_store, key, str(time.time_ns()), arguments)
    record.write_text(str(made))
    try:
        run_step(state, "publish", name, "--no-point")
    finally:
        record.write_text(str(first))
    return (state.directory / "published").read_text()


@lab.command("down")
@name_option
def down(name: str) -> None:
    """End the lab. Leaves no process, namespace or mount behind; what was built stays in the cache."""
    require_root()
    state = demo_state(name)
    clean(state)
    state.remove_directory()
    printer.say(f"lab {name} is gone")


for _step in (*STEPS, *VPC_COMMANDS):
    lab.add_command(_step)


def main() -> None:
    """`bin/lab`, `python -m lab.cli`."""
    run_group(lab, "bin/lab")
