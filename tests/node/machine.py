"""A booted machine as the agent finds it: a folder with boot.json and the kernel's files, and a Python without
anything else installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import provisioner
import provisioner.node

TOKEN = "abc123.0123456789abcdef"
BOOT_ID = "6f1c5d0e-8c55-4b57-9f8f-0d8a5a3f1e11"
SYSTEM_UUID = "4c4c4544-0042-4410-8056-b4c04f564432"

CONFIGURATION = {
    "nodeName": "r01-u01",
    "apiServer": "https://10.80.0.1:6443",
    "clusterCA": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    "bootstrapToken": TOKEN,
    "nodeAddress": "10.80.0.21",
    "kubeletConfiguration": {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"},
}


def boot_machine(root: Path, *, join_port: int, boot_port: int, ca: str, address: str = "127.0.0.21/8") -> Path:
    """What stage-1 and the kernel leave below `root`."""
    facts = {
        "server": "r01-u01",
        "mac": "52:54:00:12:34:56",
        "url": f"http://127.0.0.1:{boot_port}",
        "join": f"https://127.0.0.1:{join_port}",
        "imageDigest": "sha256:" + "9f" * 32,
        "address": address,
    }
    for path, content in (
        ("run/provisioner/boot.json", json.dumps(facts)),
        ("etc/provisioner/join-ca.pem", ca),
        ("proc/sys/kernel/random/boot_id", BOOT_ID + "\n"),
        ("sys/class/dmi/id/product_uuid", SYSTEM_UUID.upper() + "\n"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


def install_agent(folder: Path) -> Path:
    """A bare Python that has the agent as the images have it: `provisioner/__init__.py`, `provisioner/node`, no more.

    Returns the interpreter.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sysconfig.get_python_version()}"
    target = folder / "lib" / version / "site-packages" / "provisioner"
    target.mkdir()
    shutil.copy(str(provisioner.__file__), target / "__init__.py")
    source = Path(str(provisioner.node.__file__)).parent
    shutil.copytree(source, target / "node", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "bin" / "python3"


def start_agent(python: Path, *arguments: str) -> subprocess.Popen[str]:
    """The agent as its unit starts it."""
    return subprocess.Popen(
        [python, "-I", "-m", "provisioner.node", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={},
    )
