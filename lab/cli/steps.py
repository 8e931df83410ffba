"""The lab's commands that run inside its network namespace: the daemon, and the steps that need its API server."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Literal

import click

from lab.cli.parts import demo_state, describe_demo_rack, kubectl, obtain_parts
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cli import printer
from provisioner.node.stop_signals import stop_on_signals

name_option = click.option(
    "--name", default="demo", show_default=True, help="Name of the lab; several may run at once."
)


@click.command("run", hidden=True)
@name_option
@click.option("--memory", "memory_mib", type=int, required=True)
@click.option("--servers", required=True)
@click.option("--http-boot", is_flag=True)
def run(name: str, memory_mib: int, servers: str, http_boot: bool) -> None:
    """The daemon; runs in the lab's namespace."""
    from lab.demo.daemon import DemoDaemon, DemoParts
    from provisioner.cli.service.manifests import all_manifests

    state = demo_state(name)
    tools, binaries = obtain_parts(state, None)
    rack = describe_demo_rack(state, tools, memory_mib, servers, http_boot, None)
    parts = DemoParts(binaries=binaries, tools=tools, rack=rack, manifests=all_manifests())
    DemoDaemon(state, parts).run(stop_on_signals())


@click.command("publish", hidden=True)
@name_option
@click.option("--pool", default="gpu", show_default=True)
@click.option("--point/--no-point", "points_pool", default=True)
@click.option("--attestation", type=click.Choice(["Required", "Optional"]), default="Optional", show_default=True)
def publish(name: str, pool: str, points_pool: bool, attestation: Literal["Required", "Optional"]) -> None:
    """Publish the pool's image that was built last, and point the pool at it. Its name is written down beside it."""
    from lab.demo import up as demo_up
    from provisioner.cluster.client import BUSY_SECONDS, Cluster
    from provisioner.image.finished.publish import publish_image
    from provisioner.image.finished.sign import read_public_key

    state = demo_state(name)
    cluster = Cluster.connect(state.kubeconfig, busy_seconds=BUSY_SECONDS)
    folder = Path(state.image_record(pool).read_text())
    published = publish_image(folder, state.image_store, read_public_key(state.keys / "image.pub"), cluster)
    (state.directory / "published").write_text(published.name)
    if points_pool:
        spec = demo_up.node_pool(published.name, name=pool, attestation=attestation)
        cluster.apply(spec, manager="provisioner-lab")


@click.command("register", hidden=True)
@name_option
@click.option("--memory", "memory_mib", type=int, required=True)
@click.option("--servers", required=True)
@click.option("--http-boot", is_flag=True)
def register(name: str, memory_mib: int, servers: str, http_boot: bool) -> None:
    """Register the rack as operations would: a Secret for its BMCs, and `provisioner rack register`."""
    from lab.demo import up as demo_up
    from provisioner.cluster.client import BUSY_SECONDS, Cluster

    state = demo_state(name)
    tools, _ = obtain_parts(state, None)
    rack = describe_demo_rack(state, tools, memory_mib, servers, http_boot, None)
    cluster = Cluster.connect(state.kubeconfig, busy_seconds=BUSY_SECONDS)
    cluster.apply(rack.bmc_secret(), manager="provisioner-lab")
    documents = demo_up.write_json(state.directory / "rack.yaml", demo_up.registration(rack))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "provisioner.cli",
            "rack",
            "register",
            str(documents),
            "--kubeconfig",
            str(state.kubeconfig),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    demo_up.tell_underlay_addresses(cluster, rack)


@click.command("follow", hidden=True)
@name_option
@click.option("--timeout", "timeout_seconds", type=float, required=True)
@click.option("--servers", required=True)
def follow(name: str, timeout_seconds: float, servers: str) -> None:
    """Show the boots until all servers are Ready; approve, as an administrator would, what their firmware measured."""
    from lab.cli.approval import Approver
    from lab.demo.show import BootDisplay, follow_until, is_ready, what_is_missing
    from provisioner.api import Server
    from provisioner.cluster.client import BUSY_SECONDS, Cluster

    state = demo_state(name)
    cluster = Cluster.connect(state.kubeconfig, busy_seconds=BUSY_SECONDS)
    firmware = {f"r01-u{unit:02d}": kind for unit, kind in enumerate(servers.split(","), start=1)}
    display = BootDisplay(sys.stdout, firmware)
    approver = Approver(cluster, display.say)

    def read() -> list[Server]:
        # What the rack has: the server of a DPU alone is registered, and no machine.
        servers = [server for server in cluster.read_all(Server) if server.name in firmware]
        approver.look(servers)
        return servers

    waiting = follow_until(is_ready, read, display, timeout_seconds=timeout_seconds)
    kubectl(state, "get", "servers")
    if waiting:
        missing = "\n".join(f"  {server.name}: {what_is_missing(server)}" for server in waiting)
        raise NeedsHuman(
            f"not Ready after {timeout_seconds:.0f} s:\n{missing}\n",
            hint=f"look into {state.directory}/logs and rack/*/console.log",
        )


@click.command("reimage-node", hidden=True)
@name_option
@click.option("--server", required=True)
@click.option("--image", required=True)
@click.option("--by", type=click.Choice(["kexec", "power-cycle"]), required=True)
@click.option("--job-seconds", type=int, required=True)
@click.option("--timeout", "timeout_seconds", type=float, required=True)
def reimage_node(name: str, server: str, image: str, by: str, job_seconds: int, timeout_seconds: float) -> None:
    """Run a job on a node, ask for another image as an administrator would, and show what comes of it."""
    from lab.demo import maintenance as demo_maintenance
    from lab.demo import up as demo_up
    from provisioner.api import Maintenance, Server
    from provisioner.api.nodes.contract import POWER_CYCLE_REQUESTED, REIMAGE_REQUESTED
    from provisioner.cluster.client import BUSY_SECONDS, Cluster

    state = demo_state(name)
    cluster = Cluster.connect(state.kubeconfig, busy_seconds=BUSY_SECONDS)
    printer.say(f"{server} runs {cluster.read(Server, server).status.image_ref}; it shall run {image} once")
    demo_up.run_job(cluster, server, job_seconds, printer.say)
    asked = demo_up.now()
    condition = REIMAGE_REQUESTED if by == "kexec" else POWER_CYCLE_REQUESTED
    patch = demo_maintenance.request_patch(condition, "WhenIdle", f"image={image} demo: another image", asked)
    printer.say(f"$ kubectl patch node {server} --subresource=status -p '{patch}'")
    kubectl(state, "patch", "node", server, "--subresource=status", "-p", patch)
    ended = demo_maintenance.follow_maintenance(
        lambda: demo_maintenance.find_latest(cluster.read_all(Maintenance), server, asked),
        demo_maintenance.MaintenanceDisplay(sys.stdout),
        timeout_seconds=timeout_seconds,
    )
    printer.say(f"$ kubectl provision why {server}")
    kubectl(state, "provision", "why", server)
    if ended is None or ended.status.phase != "Completed":
        raise NeedsHuman(f"{server} did not come back on {image}", hint=f"kubectl provision why {server}")


@click.command("roll-out", hidden=True)
@name_option
@click.option("--server", required=True)
@click.option("--image", required=True)
@click.option("--job-seconds", type=int, required=True)
@click.option("--timeout", "timeout_seconds", type=float, required=True)
def roll_out(name: str, server: str, image: str, job_seconds: int, timeout_seconds: float) -> None:
    """Run a job on a node, move the pool to another image as an administrator would, and watch it."""
    from lab.demo import up as demo_up
    from provisioner.cluster.client import BUSY_SECONDS, Cluster

    state = demo_state(name)
    cluster = Cluster.connect(state.kubeconfig, busy_seconds=BUSY_SECONDS)
    job = demo_up.run_job(cluster, server, job_seconds, printer.say)
    short = '{"spec":{"upgradeStrategy":{"canary":{"soakSeconds":10}}}}'
    for words in (
        ("patch", "nodepool", demo_up.POOL, "--type=merge", "-p", short),
        ("provision", "rollout", "start", demo_up.POOL, "--image", image),
        ("provision", "rollout", "status", demo_up.POOL, "--watch", f"--timeout={timeout_seconds:.0f}s"),
        ("get", "servers"),
        ("get", "job", job),
    ):
        printer.say(f"$ kubectl {shlex.join(words)}")
        kubectl(state, *words)


STEPS = (run, publish, register, follow, reimage_node, roll_out)
