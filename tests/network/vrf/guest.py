"""A virtual machine in which tests of this checkout run, on the kernel of an image: one that has VRFs.

Kernel and modules are the image's; Python, its packages, `ip`, `nft` and the tests are those of the machine that runs
it, in a squashfs with a tmpfs above. Emulated by TCG; no network card.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from lab.machine.machine import EMULATED_KERNEL_ARGUMENTS, processors
from lab.tools import Tools
from provisioner.image.finished.store import part_files
from provisioner.image.tools import cpio
from tests.emulator import Heard, emulator
from tests.image.made_images import layer_files
from tests.tools import installed

ROOT: Final = Path(__file__).parents[3]
PROGRAMS: Final = ("ip", "nft", "nsenter", "unshare", "sysctl", "env", "sh", "busybox")
PACKAGES: Final = (
    *("_pytest", "pytest", "pluggy", "iniconfig", "packaging", "pygments", "pytest_timeout.py", "py.py", "attr"),
    *("scapy", "pyroute2", "structlog", "typing_extensions.py", "click", "rich", "cryptography", "sortedcontainers"),
    *("hypothesis", "_hypothesis_globals.py", "_hypothesis_pytestplugin.py"),
)
NEEDED_FIRST: Final = ("virtio_pci", "virtio_blk", "squashfs", "overlay")
LOADED: Final = ("vrf", "vxlan", "veth", "bridge", "af_packet", "nf_*", "nft_*")
"""Patterns of names. Loaded at the beginning, as busybox finds no module by what a kernel asks for."""
WALL_SECONDS: Final = 1200
ENDED: Final = "guest: pytest ended with "

_FIRST: Final = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules); do insmod "/lib/$module" || echo "guest: $module was not loaded"; done
mkdir -p /system /ram /new
mount -t squashfs -o ro /dev/vda /system || poweroff -f
mount -t tmpfs ram /ram
mkdir /ram/upper /ram/work
mount -t overlay -o lowerdir=/system,upperdir=/ram/upper,workdir=/ram/work overlay /new
for folder in proc sys dev run tmp root var/lib var/tmp etc; do mkdir -p "/new/$folder"; done
for link in bin sbin lib lib64; do ln -s "usr/$link" "/new/$link"; done
/bin/busybox --install -s /new/usr/bin 2>/dev/null # what is there already stays
cp /second /new/second
exec switch_root /new /bin/busybox sh /second
"""
_SECOND: Final = """
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mount --make-shared /run
ln -s @MODULES@ /usr/lib/modules
mkdir -p /run/netns
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
echo /bin/modprobe > /proc/sys/kernel/modprobe
for pattern in @LOADED@; do
    for file in $(find /usr/lib/modules/ -follow -name "$pattern.ko"); do
        module=${file##*/}
        modprobe "${module%.ko}" || echo "guest: $module was not loaded"
    done
done
ip link set lo up
cd @ROOT@
@COMMAND@
echo "@ENDED@$?"
poweroff -f
"""


def run_tests(tools: Tools, image: Path, folder: Path, arguments: Sequence[str], **environment: str) -> str:
    """pytest with `arguments` in a guest with the kernel of `image`. Returns: what its console said.

    Raises: AssertionError after WALL_SECONDS.
    """
    modules = folder / "usr" / "lib" / "modules"
    kernel, lowest = part_files(image)["kernel"], layer_files(image)[0]
    subprocess.run(["unsquashfs", "-q", "-n", "-f", "-d", folder, lowest, "usr/lib/modules"], check=True)
    disk, first = folder / "system.squashfs", folder / "first.img"
    pack_system(disk, folder)
    command = " ".join(
        [
            *(f"{name}={value}" for name, value in environment.items()),
            f"PYTHONPATH={ROOT}:{site()}",
            # Taken away is nothing here: the packages of what would be are not in the guest.
            f"{real(sys.executable)} -m pytest -p no:cacheprovider -p no:tests.attacks.taken_away.plugin",
            f"--color=no {' '.join(arguments)}",
        ]
    )
    words = {
        "MODULES": str(modules),
        "LOADED": " ".join(f"'{each}'" for each in LOADED),
        "ROOT": str(ROOT),
        "COMMAND": command,
        "ENDED": ENDED,
    }
    second = _SECOND
    for name, value in words.items():
        second = second.replace(f"@{name}@", value)
    first.write_bytes(first_root(next(modules.iterdir()), second))
    line = ["console=ttyS0,115200", "quiet", "panic=-1", *EMULATED_KERNEL_ARGUMENTS]
    qemu = tools.command(
        [
            *("qemu-system-x86_64", "-machine", "q35", *processors("tcg", 1)),
            *("-m", "1024", "-nographic", "-no-reboot", "-nic", "none"),
            *("-kernel", kernel, "-initrd", first, "-append", " ".join(line)),
            *("-drive", f"if=virtio,format=raw,readonly=on,file={disk}"),
        ],
        binds=[kernel.parent, folder],
    )
    heard = Heard()
    with emulator(qemu, heard):
        heard.wait_for("its end", lambda: heard.ended or None, WALL_SECONDS)
    return "\n".join(heard.console)


def site() -> Path:
    """Where this interpreter's packages lie."""
    return next(Path(each) for each in sys.path if each.endswith("site-packages"))


def real(program: str) -> str:
    return os.path.realpath(program)


def pack_system(disk: Path, folder: Path) -> None:
    """What the tests need of this machine, at the same paths; and the modules that were unpacked into `folder`."""
    python = real(sys.executable)
    programs = [shutil.which(each) or installed(each) for each in PROGRAMS]
    native = [*(site() / "cryptography").rglob("*.so"), *site().glob("_cffi_backend*.so")]
    library = Path(os.__file__).parent
    native += (library / "lib-dynload").glob("*.so")
    wanted = {
        python,
        *(each for program in programs for each in (program, real(program))),
        *libraries([python, *programs, *map(str, native)]),
        str(library),
        *(str(site() / each) for each in PACKAGES if (site() / each).exists()),
        *(str(each) for each in site().glob("_cffi_backend*.so")),
        *(str(ROOT / each) for each in ("provisioner", "lab", "tests", "pyproject.toml", "ipxe", "images")),
        str(folder / "usr" / "lib" / "modules"),
        "/etc/protocols",
    }
    wanted = {each for each in wanted if Path(each).exists()}
    left_out = [library / each for each in ("test", "idlelib", "tkinter", "lib2to3", "ensurepip")]
    command = ["mksquashfs", *sorted(each.lstrip("/") for each in wanted), str(disk)]
    quick = ["-no-strip", "-comp", "zstd", "-Xcompression-level", "1", "-quiet", "-no-progress", "-noappend"]
    subprocess.run([*command, *quick, "-e", *(str(each).lstrip("/") for each in left_out)], cwd="/", check=True)


def libraries(files: Iterable[str]) -> set[str]:
    """What they are linked with, as paths and as what these are links to, the loader among them."""
    found: set[str] = set()
    for file in files:
        ran = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
        for line in ran.stdout.splitlines():
            found.update(word for word in line.split() if word.startswith("/"))
    usual = {f"/usr{each}" if not each.startswith("/usr/") else each for each in found}
    return {each for path in usual for each in (path, real(path))}


def first_root(modules: Path, second: str) -> bytes:
    """An initramfs that mounts the disk and goes over to it."""
    busybox = Path(real(installed("busybox"))).read_bytes()
    order = load_order(modules, NEEDED_FIRST)
    entries = [
        *(cpio.folder(name) for name in ("dev", "proc", "sys")),
        cpio.character_device("dev/console", 5, 1),
        cpio.file("init", _FIRST.encode(), 0o755),
        cpio.file("second", second.encode(), 0o755),
        cpio.file("modules", "\n".join(Path(each).name for each in order).encode()),
        cpio.file("bin/busybox", busybox, 0o755),
        *(
            cpio.link(f"bin/{applet}", "busybox")
            for applet in ("sh", "mount", "mkdir", "ln", "cp", "cat", "echo", "insmod", "switch_root", "poweroff")
        ),
        *(cpio.file(f"lib/{Path(each).name}", (modules / each).read_bytes()) for each in order),
    ]
    return cpio.archive(entries)


def load_order(modules: Path, names: Iterable[str]) -> list[str]:
    """Their files and those of what they need, in the order in which they can be loaded; built-in ones have none."""
    needs = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        file, _, rest = line.partition(":")
        needs[Path(file).name.partition(".ko")[0].replace("-", "_")] = (file, rest.split())
    order: list[str] = []
    for name in names:
        if name in needs:
            file, before = needs[name]
            order += [each for each in [*reversed(before), file] if each not in order]
    return order
