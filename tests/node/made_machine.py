"""Made-up sysfs and procfs trees, as the kernel lays them out."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "proc/meminfo": "MemTotal:       2113632108 kB\nMemFree:        2000000000 kB\nMemAvailable:   2000000000 kB\n",
    "proc/cmdline": "vmlinuz initrd=stage1.img provisioner.server=r01-u01\n",
    "proc/sys/kernel/kexec_load_disabled": "0\n",
    "sys/class/dmi/id/sys_vendor": "Supermicro\n",
    "sys/class/dmi/id/product_name": "SYS-821GE-TNHR\n",
    "sys/devices/system/cpu/online": "0-111,113\n",
    "sys/kernel/kexec_loaded": "0\n",
    "sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
    "usr/sbin/kexec": "",
}


def write(root: Path, path: str, content: str) -> None:
    """One file below `root`."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content)


def make_machine(root: Path) -> Path:
    """A server without devices."""
    for path, content in FILES.items():
        write(root, path, content)
    (root / "usr/sbin/kexec").chmod(0o755)
    return root


def add_pci(root: Path, address: str, class_id: str, ids: tuple[str, str], driver: str | None, **also: str) -> Path:
    """A PCI function; `also`: more of its files. Returns its folder."""
    folder = f"sys/devices/pci0000:00/{address}"
    for name, content in {"class": class_id, "vendor": ids[0], "device": ids[1], **also}.items():
        write(root, f"{folder}/{name}", content + "\n")
    _link(root / "sys/bus/pci/devices" / address, root / folder)
    if driver is not None:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        _link(root / folder / "driver", root / "sys/bus/pci/drivers" / driver)
    return root / folder


def add_nic(root: Path, name: str, mac: str, device: Path | None, speed: str = "-1") -> None:
    """An interface; without a device it is one of software."""
    folder = root / "sys/devices/virtual/net" / name if device is None else device / "net" / name
    write(folder, "address", mac + "\n")
    write(folder, "speed", speed + "\n")
    if device is not None:
        _link(folder / "device", device)
    _link(root / "sys/class/net" / name, folder)


def add_disk(root: Path, name: str, sectors: int, model: str | None, *, is_real: bool = True) -> None:
    """A block device."""
    write(root, f"sys/block/{name}/size", f"{sectors}\n")
    if is_real:
        (root / f"sys/block/{name}/device").mkdir()
    if model is not None:
        write(root, f"sys/block/{name}/device/model", f"{model}   \n")


def add_infiniband_port(root: Path, device: str, port: int, state: str, rate: str, link_layer: str) -> None:
    """A port of an HCA."""
    for file, content in (("state", state), ("rate", rate), ("link_layer", link_layer)):
        write(root, f"sys/class/infiniband/{device}/ports/{port}/{file}", content + "\n")


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
