"""`provisioner lab`: a rack on one machine, for a demo, for the tests, for trying things out."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import structlog

from provisioner.api.errors import NeedsHuman
from provisioner.cli.options import stop_on_signals

if TYPE_CHECKING:
    from provisioner.image.build import Built
    from provisioner.lab.binaries import Binaries
    from provisioner.lab.demo_state import DemoState
    from provisioner.lab.rack import VirtualRack
    from provisioner.lab.tools import Tools

CHECKOUT: Final = Path(__file__).resolve().parents[2]
DISTRIBUTION: Final = "debian"

_name = click.option("--name", default="demo", show_default=True, help="Name of the lab; several may run at once.")


FOR_PEOPLE: Final = ("up", "shell", "reimage", "down")
"""Commands that report in lines of their own; their parts' logs would stand between."""


@click.group("lab")
@click.pass_context
def lab(context: click.Context) -> None:
    """A virtual rack on this machine: control plane, boot service, BMCs and servers in a network namespace."""
    if context.invoked_subcommand in FOR_PEOPLE and not context.find_root().params.get("verbose"):
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


@lab.command("flags")
def flags() -> None:
    """Print the flags and objects that a control plane of your own needs, with the reason for each."""
    from provisioner.lab.control_plane_flags import production_flags_text
    from provisioner.lab.control_plane_objects import production_objects_text

    click.echo(production_flags_text())
    click.echo(production_objects_text())


@lab.command("up")
@_name
@click.option("--memory", "memory_mib", default=1024, show_default=True, help="Memory of each server in MiB.")
@click.option(
    "--timeout", "timeout_seconds", default=900.0, show_default=True, help="How long the boots may take, in seconds."
)
@click.option("--servers", default="BIOS,UEFI", show_default=True, help="Firmware of each server.")
@click.option("--http-boot", is_flag=True, help="Boot UEFI servers by UEFI HTTP boot, the URL set through the BMC.")
def up(name: str, memory_mib: int, timeout_seconds: float, servers: str, http_boot: bool) -> None:
    """Start the lab and boot its servers until they are Ready nodes. What a killed lab left is cleaned first."""
    from provisioner.lab import demo_up

    _require_root()
    state = _state(name)
    report = demo_up.Report(sys.stdout)
    demo_up.clean(state)
    tools, binaries = _obtain_parts(state, report)
    built = _build_image(state, binaries, report)
    rack = _describe(state, tools, memory_mib, servers, http_boot, built.folder / "vmlinuz")
    words = {"kvm": "under KVM", "tcg": "emulated: KVM does not boot Linux on this machine"}[rack.accelerator]
    report.line("machines", f"{len(rack.description.servers)} servers with {memory_mib} MiB, {words}")
    state.fresh_directory()
    rack.prepare(demo_up.now())
    demo_up.create_network(state, rack)
    seconds = demo_up.start_daemon(state, _daemon_arguments(memory_mib, servers, http_boot))
    report.line(
        "control plane", f"kube-apiserver {binaries.version}, etcd, controller-manager, scheduler", "ready", seconds
    )
    _in_namespace(state, "publish", name)
    registered = (
        f"{rack.description.name}: {len(rack.description.servers)} servers registered, powered on through their BMCs"
    )
    _in_namespace(state, "register", name, *_daemon_arguments(memory_mib, servers, http_boot))
    report.line("rack", registered)
    _in_namespace(state, "follow", name, f"--timeout={timeout_seconds}", f"--servers={servers}", show=True)
    click.echo("\nnext: make demo-shell (kubectl, provisioner on PATH) · make demo-reimage · make demo-down")


@lab.command("shell")
@_name
@click.argument("command", nargs=-1)
def shell(name: str, command: tuple[str, ...]) -> None:
    """Open a shell in the lab's network namespace, with kubectl and provisioner on its PATH; or run a COMMAND there."""
    from provisioner.lab import demo_up
    from provisioner.lab.network import LabNetwork

    state = _state(name)
    demo_up.require_running(state)
    argv = LabNetwork(name).command(command or (os.environ.get("SHELL", "/bin/bash"),))
    os.execvpe(argv[0], argv, _lab_environment(state))  # noqa: S606 - becoming the shell is the point


@lab.command("reimage")
@_name
@click.option("--server", default="r01-u02", show_default=True, help="Server to bring back on another image.")
@click.option(
    "--timeout", "timeout_seconds", default=600.0, show_default=True, help="How long it may take, in seconds."
)
def reimage(name: str, server: str, timeout_seconds: float) -> None:
    """Build another image, point the pool at it, and switch one server off and on, which boots it anew."""
    from provisioner.lab import demo_up

    state = _state(name)
    demo_up.require_running(state)
    report = demo_up.Report(sys.stdout)
    _, binaries = _obtain_parts(state, report)
    _build_image(state, binaries, report, note=str(int(time.time())))
    _in_namespace(state, "publish", name)
    _in_namespace(state, "power-cycle", name, f"--server={server}", f"--timeout={timeout_seconds}", show=True)


@lab.command("down")
@_name
def down(name: str) -> None:
    """End the lab. Leaves no process, namespace or mount behind; what was built stays in the cache."""
    from provisioner.lab import demo_up

    _require_root()
    state = _state(name)
    demo_up.clean(state)
    state.remove_directory()
    click.echo(f"lab {name} is gone")


@lab.command("run", hidden=True)
@_name
@click.option("--memory", "memory_mib", type=int, required=True)
@click.option("--servers", required=True)
@click.option("--http-boot", is_flag=True)
def run(name: str, memory_mib: int, servers: str, http_boot: bool) -> None:
    """The daemon; runs in the lab's namespace."""
    from provisioner.cli.manifests import all_manifests
    from provisioner.lab.demo_daemon import DemoDaemon, DemoParts

    state = _state(name)
    tools, binaries = _obtain_parts(state, None)
    rack = _describe(state, tools, memory_mib, servers, http_boot, None)
    parts = DemoParts(binaries=binaries, tools=tools, rack=rack, manifests=all_manifests())
    DemoDaemon(state, parts).run(stop_on_signals())


@lab.command("publish", hidden=True)
@_name
def publish(name: str) -> None:
    """Publish the image that was built last and point the pool at it."""
    from provisioner.cluster.client import Cluster
    from provisioner.image.publish import publish_image
    from provisioner.image.sign import read_public_key
    from provisioner.lab import demo_up

    state = _state(name)
    cluster = Cluster.connect(state.kubeconfig)
    folder = Path((state.directory / "image").read_text())
    published = publish_image(folder, state.image_store, read_public_key(state.keys / "image.pub"), cluster)
    cluster.apply(demo_up.node_pool(published.name), manager="provisioner-lab")


@lab.command("register", hidden=True)
@_name
@click.option("--memory", "memory_mib", type=int, required=True)
@click.option("--servers", required=True)
@click.option("--http-boot", is_flag=True)
def register(name: str, memory_mib: int, servers: str, http_boot: bool) -> None:
    """Register the rack as operations would: a Secret for its BMCs, and `provisioner rack register`."""
    from provisioner.cluster.client import Cluster
    from provisioner.lab import demo_up

    state = _state(name)
    tools, _ = _obtain_parts(state, None)
    rack = _describe(state, tools, memory_mib, servers, http_boot, None)
    Cluster.connect(state.kubeconfig).apply(rack.bmc_secret(), manager="provisioner-lab")
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


@lab.command("follow", hidden=True)
@_name
@click.option("--timeout", "timeout_seconds", type=float, required=True)
@click.option("--servers", required=True)
def follow(name: str, timeout_seconds: float, servers: str) -> None:
    """Show the boots until all servers are Ready."""
    from provisioner.api import Server
    from provisioner.cluster.client import Cluster
    from provisioner.lab.demo_show import BootDisplay, follow_until, is_ready, what_is_missing

    state = _state(name)
    cluster = Cluster.connect(state.kubeconfig)
    firmware = {f"r01-u{unit:02d}": kind for unit, kind in enumerate(servers.split(","), start=1)}
    waiting = follow_until(
        is_ready,
        lambda: cluster.read_all(Server),
        BootDisplay(sys.stdout, firmware),
        timeout_seconds=timeout_seconds,
    )
    _kubectl(state, "get", "servers")
    if waiting:
        missing = "\n".join(f"  {server.name}: {what_is_missing(server)}" for server in waiting)
        raise NeedsHuman(
            f"not Ready after {timeout_seconds:.0f} s:\n{missing}\n",
            hint=f"look into {state.directory}/logs and rack/*/console.log",
        )


@lab.command("power-cycle", hidden=True)
@_name
@click.option("--server", required=True)
@click.option("--timeout", "timeout_seconds", type=float, required=True)
def power_cycle(name: str, server: str, timeout_seconds: float) -> None:
    """Switch a server off and on as an administrator would, and show its boot."""
    from provisioner.api import NodePool, Server
    from provisioner.cluster.client import Cluster
    from provisioner.lab.demo_show import BootDisplay, follow_until, is_ready
    from provisioner.lab.demo_up import POOL

    state = _state(name)
    cluster = Cluster.connect(state.kubeconfig)
    wanted = cluster.read(NodePool, POOL).spec.image_ref
    before = cluster.read(Server, server)
    click.echo(f"{server} runs {before.status.image_ref}; the pool now names {wanted}")
    power = {"Off": '{"spec":{"powerState":"Off"}}', "On": '{"spec":{"powerState":"On"}}'}
    display = BootDisplay(sys.stdout, {})

    def read() -> list[Server]:
        return [cluster.read(Server, server)]

    _kubectl(state, "patch", "server", server, "--type=merge", "-p", power["Off"])
    follow_until(
        lambda seen: bool(seen.status.power and seen.status.power.state == "Off"), read, display, timeout_seconds=120
    )
    _kubectl(state, "patch", "server", server, "--type=merge", "-p", power["On"])
    waiting = follow_until(
        lambda seen: is_ready(seen) and seen.status.image_ref == wanted, read, display, timeout_seconds=timeout_seconds
    )
    _kubectl(state, "get", "servers")
    if waiting:
        raise NeedsHuman(f"{server} did not come back on {wanted}", hint=f"kubectl describe server {server}")


def _state(name: str) -> DemoState:
    from provisioner.lab.demo_state import DemoState

    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(os.environ.get("PROVISIONER_CACHE") or Path(home) / "provisioner")
    return DemoState(cache=cache.absolute(), name=name)


def _require_root() -> None:
    if os.geteuid() != 0:
        raise NeedsHuman("a lab needs root (network namespaces, mounts, mmdebstrap)", hint="run it as root")


def _obtain_parts(state: DemoState, report: Any) -> tuple[Tools, Binaries]:
    from provisioner.lab.binaries import find_binaries
    from provisioner.lab.tools import content_key, obtain_tools

    assets = os.environ.get("KUBEBUILDER_ASSETS")
    state.cache.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    if report and not (state.cache / f"tools-{content_key()}").is_dir():
        report.progress("QEMU, firmware, iPXE, nginx and dnsmasq are unpacked beside this system (1 to 2 minutes)")
    tools = obtain_tools(state.cache)
    binaries = find_binaries(
        assets=Path(assets) if assets else None,
        cache=state.cache,
        tools_root=tools.root,
        report=report.progress if report else (lambda _line: None),
    )
    if report:
        report.line(
            "tools",
            f"QEMU, iPXE, nginx; Kubernetes {binaries.version} from {binaries.source.split(' ')[0]}",
            "found",
            time.monotonic() - begin,
        )
    return tools, binaries


def _build_image(state: DemoState, binaries: Binaries, report: Any, note: str | None = None) -> Built:
    from provisioner.image.build import Request, build_image
    from provisioner.image.mirror import choose_archives, read_sources
    from provisioner.image.plan import Choices
    from provisioner.image.recipe import read_recipe
    from provisioner.image.root import Ingredients
    from provisioner.image.sign import SecretKey, read_secret_key, write_keys
    from provisioner.lab.demo_keys import obtain_keys

    keys = obtain_keys(state.keys)
    if not (state.keys / "image.sec").exists():
        write_keys(state.keys, SecretKey.generate())
    recipe = read_recipe(CHECKOUT / "images" / "gpu-node")
    if note:  # another manifest is another image, by another digest
        recipe = dataclasses.replace(recipe, kernel_arguments=(*recipe.kernel_arguments, f"lab.note={note}"))
    distribution = recipe.distribution(DISTRIBUTION, "x86_64")
    begin = time.monotonic()
    built = build_image(
        Request(
            recipe=recipe,
            choices=Choices(
                architecture="x86_64",
                distribution=distribution,
                archives=choose_archives(distribution, read_sources(), None),
            ),
            ingredients=Ingredients(
                architecture="x86_64",
                kubelet=binaries.kubelet,
                join_ca=keys.join_ca,
                agent=CHECKOUT / "provisioner",
            ),
            key=read_secret_key(state.keys / "image.sec"),
            output=state.image_store,
            cache=state.cache / "image-build",
        ),
        lambda phase, outcome, seconds: report.progress(f"{phase:<10} {outcome:<50} {seconds:5.0f} s"),
    )
    root = built.manifest.files()["root"].size_bytes
    digest = built.digest[:15]
    state.directory.mkdir(parents=True, exist_ok=True)
    (state.directory / "image").write_text(str(built.folder))
    report.line(
        "image",
        f"gpu-node ({DISTRIBUTION}) {digest}…  root {root / 1e6:.0f} MB",
        "cached" if built.reused else "built",
        time.monotonic() - begin,
    )
    return built


def _describe(
    state: DemoState, tools: Tools, memory_mib: int, servers: str, http_boot: bool, probe_kernel: Path | None
) -> VirtualRack:
    from provisioner.lab.demo_keys import obtain_keys
    from provisioner.lab.kvm import choose_accelerator
    from provisioner.lab.machine import Accelerator
    from provisioner.lab.network import LabNetwork
    from provisioner.lab.rack import VirtualRack
    from provisioner.lab.rack_description import describe_rack

    firmwares: Any = tuple(servers.split(","))
    chosen = state.cache / "labs" / f".{state.name}-accelerator"
    if probe_kernel is not None:
        chosen.parent.mkdir(parents=True, exist_ok=True)
        chosen.write_text(choose_accelerator(probe_kernel, tools, state.cache))
    accelerator: Accelerator = "kvm" if chosen.exists() and chosen.read_text() == "kvm" else "tcg"
    methods: Any = {unit: "UefiHttp" for unit, kind in enumerate(firmwares, start=1) if http_boot and kind == "UEFI"}
    return VirtualRack(
        describe_rack(
            obtain_keys(state.keys).bmc_password, firmwares=firmwares, boot_methods=methods, memory_mib=memory_mib
        ),
        network=LabNetwork(state.name),
        tools=tools,
        directory=state.directory / "rack",
        accelerator=accelerator,
    )


def _daemon_arguments(memory_mib: int, servers: str, http_boot: bool) -> list[str]:
    return [f"--memory={memory_mib}", f"--servers={servers}", *(["--http-boot"] if http_boot else [])]


def _in_namespace(state: DemoState, step: str, name: str, *arguments: str, show: bool = False) -> None:
    """Run one of the hidden commands in the lab's network namespace. Raises: NeedsHuman with what it said."""
    from provisioner.lab.network import LabNetwork

    argv = [sys.executable, "-m", "provisioner.cli", "lab", step, "--name", name, *arguments]
    ran = subprocess.run(
        LabNetwork(name).command(argv),
        env=_lab_environment(state),
        stdout=None if show else subprocess.PIPE,
        stderr=None if show else subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        if show:
            sys.exit(ran.returncode)
        raise NeedsHuman(
            f"lab step {step!r} ended with {ran.returncode}:\n{ran.stdout}", hint=f"look into {state.directory}/logs"
        )


def _lab_environment(state: DemoState) -> dict[str, str]:
    from provisioner.lab.binaries import find_binaries

    programs = find_binaries(cache=state.cache, allow_download=False, allow_build=False).kubectl.parent
    path = os.pathsep.join([str(CHECKOUT / "bin"), str(programs), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "KUBECONFIG": str(state.kubeconfig), "PATH": path, "PYTHONPATH": str(CHECKOUT)}


def _kubectl(state: DemoState, *arguments: str) -> None:
    subprocess.run(["kubectl", *arguments], env=_lab_environment(state), check=True)
