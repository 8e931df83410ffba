"""What the lab's commands are made of: its directory, its tools and programs, its image, its rack."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.machinery.wording import quantity
from provisioner.cli.progress import Progress

if TYPE_CHECKING:
    from lab.binaries.obtain import Binaries
    from lab.demo.state import DemoState
    from lab.rack import VirtualRack
    from lab.tools import Tools
    from provisioner.api.servers.server import Architecture
    from provisioner.image.assembly.build import Built
    from provisioner.image.finished.sign import SecretKey

CHECKOUT: Final = Path(__file__).resolve().parents[2]
DISTRIBUTION: Final = "debian"
RECIPES: Final = {"gpu": "cpu-node", "dpu": "dpu", "gpus": "gpu-node"}
"""Of the lab's pools (lab/demo/up.py)."""


@dataclass(frozen=True)
class Report:
    """Lines that a waiting person reads: subject, text, what came of it, seconds. Between them, what is under way."""

    shown: Progress

    def line(self, subject: str, text: str, outcome: str = "", seconds: float | None = None) -> None:
        took = "" if seconds is None else f"{seconds:4.0f} s"
        self.shown.line(f"{subject:<15} {text:<62} {outcome:<7}{took}".rstrip())

    def progress(self, line: str) -> None:
        """One line of something that takes long, indented below its subject."""
        self.shown.line(f"{'':<15} {line}")

    def begin(self, what: str) -> None:
        """What is under way, shown until something else is."""
        self.shown.begin(f"{'':<15} {what}")


def demo_state(name: str) -> DemoState:
    """Where the lab of that name keeps its things; the cache is PROVISIONER_CACHE, else below ~/.cache."""
    from lab.demo.state import DemoState

    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(os.environ.get("PROVISIONER_CACHE") or Path(home) / "provisioner")
    return DemoState(cache=cache.absolute(), name=name)


def require_root() -> None:
    """Raises: NeedsHuman if this is not root."""
    if os.geteuid() != 0:
        raise NeedsHuman("a lab needs root (network namespaces, mounts, mmdebstrap)", hint="run it as root")


def obtain_parts(state: DemoState, report: Report | None) -> tuple[Tools, Binaries]:
    """Tools and Kubernetes programs, fetched or built if need be. `report` tells a waiting person, or is None."""
    from lab.tools import content_key, obtain_tools

    state.cache.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    if report:
        report.begin("obtaining tools and Kubernetes")
    if report and not (state.cache / f"tools-{content_key()}").is_dir():
        report.progress("QEMU, firmware, iPXE, nginx and dnsmasq are unpacked beside this system (1 to 2 minutes)")
    tools = obtain_tools(state.cache)
    binaries = obtain_binaries(state, report, tools_root=tools.root)
    if report:
        report.line(
            "tools",
            f"QEMU, iPXE, nginx; Kubernetes {binaries.version} from {binaries.source.split(' ')[0]}",
            "found",
            time.monotonic() - begin,
        )
    return tools, binaries


def obtain_binaries(state: DemoState, report: Report | None, *, tools_root: Path | None = None) -> Binaries:
    """The Kubernetes programs alone. `tools_root`: a chroot whose etcd is used if this machine has none."""
    from lab.binaries.obtain import find_binaries

    assets = os.environ.get("KUBEBUILDER_ASSETS")
    state.cache.mkdir(parents=True, exist_ok=True)
    return find_binaries(
        assets=Path(assets) if assets else None,
        cache=state.cache,
        tools_root=tools_root,
        report=report.progress if report else (lambda _line: None),
    )


def lab_signing_key(state: DemoState) -> SecretKey:
    """The key that signs the images of this machine's labs, made first if there is none."""
    from lab.demo.keys import obtain_keys
    from provisioner.image.finished.sign import SecretKey, read_secret_key, write_keys

    obtain_keys(state.keys)
    if not (state.keys / "image.sec").exists():
        write_keys(state.keys, SecretKey.generate())
    return read_secret_key(state.keys / "image.sec")


def build_demo_image(
    state: DemoState,
    kubelet: Path,
    report: Report,
    *,
    pool: str = "gpu",
    recipe_name: str | None = None,
    architecture: Architecture = "x86_64",
    interpreter: Path | None = None,
) -> Built:
    """The image of a pool, built with the keys of this machine's labs. `recipe_name`: if not the pool's own;
    `interpreter`: as of image.request.BuildRequest."""
    from lab.demo.keys import obtain_keys
    from provisioner.image.assembly.build import BuildRequest, build_image
    from provisioner.image.mirror import choose_archives, read_sources
    from provisioner.image.plan import Choices
    from provisioner.image.recipe import read_recipe
    from provisioner.image.root import Ingredients

    keys = obtain_keys(state.keys)
    recipe = read_recipe(CHECKOUT / "images" / (recipe_name or RECIPES[pool]))
    distribution = recipe.distribution(DISTRIBUTION, architecture)
    begin = time.monotonic()
    report.begin(f"building the image {recipe.name}")
    built = build_image(
        BuildRequest(
            recipe=recipe,
            choices=Choices(
                architecture=architecture,
                distribution=distribution,
                archives=choose_archives(distribution, read_sources(), None),
            ),
            ingredients=Ingredients(
                architecture=architecture,
                kubelet=kubelet,
                join_ca=keys.join_ca,
                agent=CHECKOUT / "provisioner",
            ),
            key=lab_signing_key(state),
            output=state.image_store,
            cache=state.cache / "image-build",
            interpreter=interpreter,
        ),
        lambda phase, outcome, seconds: report.progress(f"{phase:<10} {outcome:<50} {seconds:5.0f} s"),
    )
    root = sum(layer.file.size_bytes for layer in built.manifest.layers)
    digest = built.digest[:15]
    state.directory.mkdir(parents=True, exist_ok=True)
    state.image_record(pool).write_text(str(built.folder))
    layers = quantity(len(built.manifest.layers), "layer")
    report.line(
        "image",
        f"{recipe.name} ({DISTRIBUTION}) {digest}…  {layers}, {root / 1e6:.0f} MB",
        "cached" if built.reused else "built",
        time.monotonic() - begin,
    )
    return built


def build_dpu_image(state: DemoState, report: Report) -> Built:
    """The image of the lab's DPUs, with a kubelet that is fetched or built first."""
    from lab.binaries.kubelet import obtain_kubelet
    from lab.tools import ARM64_PACKAGES, obtain_tools

    report.begin("obtaining tools and a kubelet for arm64")
    tools = obtain_tools(state.cache, ARM64_PACKAGES)
    return build_demo_image(
        state,
        obtain_kubelet("arm64", state.cache, report.progress),
        report,
        pool="dpu",
        architecture="arm64",
        interpreter=tools.path("/usr/bin/qemu-aarch64"),
    )


def describe_demo_rack(
    state: DemoState, tools: Tools, memory_mib: int, servers: str, http_boot: bool, probe_kernel: Path | None
) -> VirtualRack:
    """The rack; with a `probe_kernel` it is found out first whether KVM boots here, else what was found is used."""
    from lab.demo.keys import obtain_keys
    from lab.machine.kvm import choose_accelerator
    from lab.machine.machine import Accelerator
    from lab.network import LabNetwork
    from lab.rack import VirtualRack
    from lab.rack_description import DPU_KINDS, ServerKind, describe_rack, processors_of_each
    from lab.tools import ARM64_PACKAGES, obtain_tools

    kinds: Any = tuple(servers.split(","))
    if unknown := [each for each in kinds if each not in get_args(ServerKind)]:
        raise NeedsHuman(
            f"--servers names '{unknown[0]}'",
            hint="write BIOS, UEFI, PlainUEFI, DPU or ProxyDPU, such as BIOS,UEFI, or UEFI,DPU",
        )
    chosen = state.cache / "labs" / f".{state.name}-accelerator"
    if probe_kernel is not None:
        chosen.parent.mkdir(parents=True, exist_ok=True)
        chosen.write_text(choose_accelerator(probe_kernel, tools, state.cache))
    accelerator: Accelerator = "kvm" if chosen.exists() and chosen.read_text() == "kvm" else "tcg"
    methods: Any = {unit: "UefiHttp" for unit, kind in enumerate(kinds, start=1) if http_boot and kind != "BIOS"}
    return VirtualRack(
        describe_rack(
            obtain_keys(state.keys).bmc_password,
            kinds=kinds,
            boot_methods=methods,
            memory_mib=memory_mib,
            cpus=processors_of_each(len(kinds), accelerator, os.cpu_count() or 1),
        ),
        network=LabNetwork(state.name),
        tools=tools,
        directory=state.directory / "rack",
        accelerator=accelerator,
        arm64_tools=obtain_tools(state.cache, ARM64_PACKAGES) if set(DPU_KINDS) & set(kinds) else None,
    )


def daemon_arguments(memory_mib: int, servers: str, http_boot: bool) -> list[str]:
    """What the steps inside the namespace must know of the rack."""
    return [f"--memory={memory_mib}", f"--servers={servers}", *(["--http-boot"] if http_boot else [])]


def run_step(state: DemoState, step: str, name: str, *arguments: str, show: bool = False) -> None:
    """Run one of the hidden commands in the lab's network namespace. Raises: NeedsHuman with what it said."""
    from lab.network import LabNetwork

    argv = [sys.executable, "-m", "lab.cli", step, "--name", name, *arguments]
    ran = subprocess.run(
        LabNetwork(name).command(argv),
        env=lab_environment(state),
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


def lab_environment(state: DemoState) -> dict[str, str]:
    """The environment of the lab's shell: its kubeconfig, and kubectl and provisioner on the PATH."""
    from lab.binaries.obtain import find_binaries

    programs = find_binaries(cache=state.cache, allow_download=False, allow_build=False).kubectl.parent
    path = os.pathsep.join([str(CHECKOUT / "bin"), str(programs), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "KUBECONFIG": str(state.kubeconfig), "PATH": path, "PYTHONPATH": str(CHECKOUT)}


def kubectl(state: DemoState, *arguments: str) -> None:
    """Run kubectl as the lab's administrator, for people to read. Raises: CalledProcessError."""
    subprocess.run(["kubectl", *arguments], env=lab_environment(state), check=True)
