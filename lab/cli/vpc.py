"""`bin/lab vpc`: two tenants with the same addresses, and what their packets can and cannot do."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import click

from lab.cli.parts import (
    Report,
    demo_state,
    lab_environment,
    obtain_binaries,
    require_root,
    run_step,
)
from lab.demo.state import DemoState, is_running
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cli import printer
from provisioner.cli.progress import Progress
from provisioner.node.stop_signals import stop_on_signals

KUBECTL_SECONDS: Final = 60

name_option = click.option("--name", default="vpc", show_default=True, help="Name of the lab; several may run at once.")


@click.command("vpc")
@name_option
@click.option("--keep", is_flag=True, help="Leave it running at the end, for `lab shell` and `lab down`.")
def vpc(name: str, keep: bool) -> None:
    """Two tenants with the same addresses on three DPUs: what must work, and what must not.

    What a killed lab of the name left is cleaned first. Exit status 1 if anything was not as it must be.
    """
    from lab.vpc_demo.network import require_programs

    require_root()
    require_programs()
    state = demo_state(name)
    is_well = False
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it has it tidied up, too
    try:
        _start(state)
        run_step(state, "play-vpc", name, show=True)
        is_well = True
    finally:
        if not keep:
            clean(state)
            if is_well:
                state.remove_directory()
            else:
                printer.say(f"logs of its parts: {state.directory}/logs", err=True)
        elif is_running(state):
            printer.say("", f"next: make demo-shell LAB={name} (kubectl on PATH) · make demo-down LAB={name}")
            printer.say(f"      ip netns exec {state.namespace}.blue-r01-u01 ping 10.1.0.7")


def _start(state: DemoState) -> None:
    """Everything, until tenants may come."""
    from lab.demo import up as demo_up
    from lab.vpc_demo import site
    from lab.vpc_demo.network import create_network

    with Progress() as progress:
        report = Report(progress)
        report.begin("ending what another lab left")
        clean(state)
        report.begin("obtaining Kubernetes")
        binaries = obtain_binaries(state, report)
        state.remove_directory()
        state.directory.mkdir(parents=True)
        report.begin("making the network namespaces of DPUs and hosts")
        create_network(state)
        report.line("network", f"{len(site.CARDS)} DPUs on an underlay, {len(site.HOSTS)} hosts behind them", "made")
        report.begin("starting control plane, controller and the DPUs' agents")
        seconds = demo_up.start_daemon(state, (), command="run-vpc")
        plane = f"kube-apiserver {binaries.version}, etcd, controller-manager"
        report.line("control plane", plane, "ready", seconds)
        report.line("services", "controllers of the group network; an agent on each DPU", "ready")


def clean(state: DemoState) -> None:
    """End whatever a lab of this name left, with or without DPUs."""
    from lab.demo import up as demo_up
    from lab.vpc_demo.network import delete_network

    demo_up.clean(state)
    delete_network(state)


@click.command("run-vpc", hidden=True)
@name_option
def run_vpc(name: str) -> None:
    """The daemon; runs in the lab's namespace."""
    from lab.vpc_demo.daemon import VPCDaemon
    from provisioner.cli.service.manifests import all_manifests

    state = demo_state(name)
    VPCDaemon(state, obtain_binaries(state, None), all_manifests()).run(stop_on_signals())


@click.command("play-vpc", hidden=True)
@name_option
def play_vpc(name: str) -> None:
    """Show all acts; runs in the lab's namespace. Exit status 1 if anything was not as it must be."""
    from lab.vpc_demo.acts import play
    from lab.vpc_demo.stage import Stage, exit_status, summary
    from provisioner.cluster.client import Cluster

    state = demo_state(name)
    environment = lab_environment(state)

    def kubectl(words: Sequence[str]) -> None:
        try:
            subprocess.run(["kubectl", *words], env=environment, check=True, timeout=KUBECTL_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise NeedsHuman(
                f"kubectl did not do it: {error}", hint=f"read {state.directory}/logs; --keep leaves all running"
            ) from error

    stage = Stage(state, Cluster.connect(state.kubeconfig), kubectl, printer.say)
    play(stage)
    printer.show("\n" + summary(stage.results))
    sys.exit(exit_status(stage.results))


VPC_COMMANDS = (vpc, run_vpc, play_vpc)
