"""QEMU, OVMF, iPXE, dnsmasq, nginx and etcd of Debian trixie, in a directory of their own beside the host's system.

Debian 12's QEMU and iPXE are too old for what the lab needs (iPXE of 2019, no HTTPS), and the host's packages are not
ours to change. The directory is a chroot made once by mmdebstrap, named by its content, and never written to again:
programs run in a private mount namespace on a tmpfs root that borrows its /usr.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.boot.host.chroot import Chroot
from provisioner.image.mirror import AptSource, read_sources

log = structlog.get_logger()

SUITE: Final = "trixie"
_HOST_SUITES: Final = ("bookworm", "trixie", "forky", "stable", "testing", "unstable", "sid")
PACKAGES: Final = (
    "busybox-static",
    "ca-certificates",
    "cpio",
    "dnsmasq-base",
    "etcd-client",
    "etcd-server",
    "iproute2",
    "ipxe",
    "ipxe-qemu",
    "kexec-tools",
    "nginx-core",
    "ovmf",
    "qemu-system-x86",
    "seabios",
    "signify-openbsd",
    "squashfs-tools",
    "swtpm",
    "swtpm-tools",
    "tcpdump",
)
ARM64_PACKAGES: Final = ("iproute2", "qemu-efi-aarch64", "qemu-system-arm", "qemu-user")
"""What arm64 machines and images need beside those: QEMU and firmware for machines, and QEMU for single programs. A
chroot of their own, as most labs have no such machine."""
EXCLUDED_PATHS: Final = (
    "/usr/share/doc/*",
    "/usr/share/info/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/i18n/*",
    "/usr/lib/valgrind/*",
    "/usr/bin/qemu-system-x86_64-microvm",
    "/usr/bin/qemu-system-i386",
    "/usr/bin/etcdutl",
    "/usr/lib/ipxe/ipxe.iso",
    "/usr/lib/ipxe/ipxe-loong64.efi",
    "/usr/lib/ipxe/ipxe-riscv64.efi",
    "/usr/lib/x86_64-linux-gnu/dri/*",
)

_EXCLUDED_OF_ARM64: Final = (
    "/usr/bin/qemu-[!as]*",
    "/usr/bin/qemu-s[!y]*",
    "/usr/bin/qemu-alpha",
    "/usr/bin/qemu-aarch64_be",
    "/usr/bin/qemu-arm*",
    "/usr/bin/qemu-system-arm*",
    "/usr/share/AAVMF/AAVMF_CODE.secboot*",
    "/usr/share/AAVMF/AAVMF_VARS.*.fd",
)
"""Every other architecture's QEMU, and firmware with Secure Boot: 600 MB."""


class Tools(Chroot):
    """The chroot at `root`. Nothing in it changes once it exists."""

    def path(self, inside: str) -> Path:
        """Where a file of the chroot, such as `/usr/lib/ipxe/snponly.efi`, lies on the host. Raises: NeedsHuman."""
        found = self.root / inside.lstrip("/")
        if not found.exists():
            raise NeedsHuman(
                f"{inside} is missing in {self.root}", hint=f"remove {self.root}; the next run builds it again"
            )
        return found


def content_key(packages: Sequence[str] = PACKAGES, suite: str = SUITE) -> str:
    """Sixteen hexadecimal digits that name what the chroot is made of."""
    recipe = "\n".join([suite, *sorted(packages), *_excluded(packages)])
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def _excluded(packages: Sequence[str]) -> tuple[str, ...]:
    return (*EXCLUDED_PATHS, *(_EXCLUDED_OF_ARM64 if set(packages) == set(ARM64_PACKAGES) else ()))


def obtain_tools(cache: Path, packages: Sequence[str] = PACKAGES, suite: str = SUITE) -> Tools:
    """The tools below `cache` (such as ~/.cache/provisioner), built first if they are not there (1 to 2 minutes).

    Safe to call from several processes: one builds, the others wait. Raises: NeedsHuman if mmdebstrap is missing or
    fails.
    """
    root = cache / f"tools-{content_key(packages, suite)}"
    if root.is_dir():
        return Tools(root)
    with _lock(cache / f".{root.name}.lock"):
        if not root.is_dir():
            _build(root, packages, suite)
    return Tools(root)


def _build(root: Path, packages: Sequence[str], suite: str) -> None:
    if shutil.which("mmdebstrap") is None:
        raise NeedsHuman(
            "the lab's tools cannot be built: mmdebstrap is not installed", hint="apt-get install mmdebstrap"
        )
    mirror = choose_mirror(read_sources())
    unfinished = root.with_name(f".{root.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    built = subprocess.run(
        build_command(unfinished, packages, suite, mirror), capture_output=True, text=True, check=False
    )
    if built.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise NeedsHuman(
            f"the lab's tools were not built: mmdebstrap from {mirror} ended with {built.returncode}: "
            f"{built.stderr.strip()[-800:]}",
            hint="check that the mirror in /etc/apt is reachable and has the suite " + suite,
        )
    unfinished.rename(root)
    log.info("lab tools were built", directory=str(root), mirror=mirror)


def choose_mirror(sources: Iterable[AptSource]) -> str:
    """The archive from which this Debian machine installs. Raises: NeedsHuman if its sources name none.

    A machine behind a firewall reaches its own mirror and perhaps nothing else; a mirror has the other suites too.
    """
    for source in sources:
        if source.suite in _HOST_SUITES and "main" in source.components and "-security" not in source.uri:
            return source.uri.rstrip("/")
    raise NeedsHuman(
        "apt on this machine names no archive of Debian, from which the lab's tools are made",
        hint=f"add one with the suite {SUITE} to /etc/apt/sources.list.d",
    )


def build_command(target: Path, packages: Sequence[str], suite: str, mirror: str) -> list[str]:
    """mmdebstrap's arguments. apt's own lists and caches do not remain in the result."""
    return [
        *("mmdebstrap", "--quiet", "--variant=apt", "--format=directory"),
        "--aptopt=APT::Install-Recommends false",
        "--aptopt=Acquire::Languages none",
        "--aptopt=Acquire::Retries 3",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _excluded(packages)),
        "--keyring=/usr/share/keyrings",
        "--include=" + ",".join(packages),
        # The host's resolv.conf is copied by mmdebstrap; the programs get the caller's network, not its resolver.
        '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
        *(suite, str(target), mirror),
    ]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
