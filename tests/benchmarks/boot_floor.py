"""The floor under a boot: the image's own kernel and root, a kubelet with ready-made certificates, started directly.

No firmware, no network boot, no verification, no join: QEMU puts kernel, stage-1 and root into memory; a changed
stage-1 mounts the root and hands over to it. What remains is what a node of this image costs on this machine, whoever
boots it.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.control_plane.pki import Authority
from lab.control_plane.plane import render_kubeconfig
from lab.demo.state import ADDRESS, DemoState
from lab.machine.machine import Accelerator, processors
from lab.network import LabNetwork
from lab.tools import Tools
from provisioner.image.tools import cpio
from provisioner.join.admission.kubelet_configuration import kubelet_configuration
from provisioner.node.image.manifest import ImageContents, ImageFile, read_manifest

NODE: Final = "floor"
MAC: Final = "52:54:00:f1:00:01"
NODE_ADDRESS: Final = "10.80.0.190"
TAP: Final = "tap-floor"

_ATTEMPT: Final = """#!/bin/sh
set -f
. /lib/stage1/say.sh
. /lib/stage1/arguments.sh
. /lib/stage1/network.sh
. /lib/stage1/manifest.sh
. /lib/stage1/layers.sh
. /lib/stage1/handover.sh
manifest=/staged/manifest
read_arguments && bring_up_network && read_manifest && fetch_root staged && mount_root && hand_over || exit 1
cp -r /floor/kubelet /run/provisioner/kubelet
cp /floor/provisioner-join.service /sysroot/etc/systemd/system/provisioner-join.service
"""

_NO_JOIN: Final = """[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
"""


@dataclass(frozen=True)
class Floor:
    """Boots the image in `folder` directly, in the lab of `state`."""

    state: DemoState
    tools: Tools
    folder: Path
    memory_mib: int
    accelerator: Accelerator

    def prepare(self) -> None:
        """Certificates, the changed stage-1 with the root in it, and a tap."""
        work, contents = self._work, self._contents
        work.mkdir(exist_ok=True)
        control_plane = self.state.directory / "control-plane"
        authority = Authority.create(control_plane / "pki", "ca")
        pair = authority.issue(NODE, f"system:node:{NODE}", organization="system:nodes")
        ca = authority.files.certificate.read_bytes()
        kubeconfig = render_kubeconfig(f"https://{ADDRESS}:6443", ca, pair, user=NODE)
        configuration = kubelet_configuration({"evictionHard": {"memory.available": "32Mi"}})
        configuration |= {"serverTLSBootstrap": False, "rotateCertificates": False}
        kubelet = {
            "kubeconfig": kubeconfig.encode(),
            "bootstrap.kubeconfig": kubeconfig.encode(),
            "kubelet.yaml": json.dumps(configuration).encode(),
            "ca.crt": ca,
            "kubelet.env": f'KUBELET_ARGS="--hostname-override={NODE} --node-ip={NODE_ADDRESS}"\n'.encode(),
        }
        changes = cpio.archive(
            [
                cpio.file("lib/stage1/attempt", _ATTEMPT.encode(), 0o755),
                *(cpio.file(f"staged/{part.file_name}", self._file(part).read_bytes()) for part in contents.layers),
                cpio.file("staged/manifest", (self.folder / "manifest").read_bytes()),
                cpio.file("floor/provisioner-join.service", _NO_JOIN.encode()),
                *(cpio.file(f"floor/kubelet/{name}", content, 0o600) for name, content in kubelet.items()),
            ]
        )
        stage1 = self._file(contents.stage1).read_bytes()
        # The kernel wants each archive to begin at a multiple of four bytes.
        (work / "stage1-floor.img").write_bytes(stage1 + b"\0" * (-len(stage1) % 4) + changes)
        LabNetwork(self.state.name).create(taps=(TAP,))

    def start(self) -> subprocess.Popen[bytes]:
        """Power on. End it with `kill`."""
        arguments = [
            f"provisioner.server={NODE}",
            f"provisioner.mac={MAC}",
            f"provisioner.url=http://{ADDRESS}",
            f"provisioner.join=https://{ADDRESS}:8443",
            f"provisioner.image={self.folder.name}",
            f"provisioner.address={NODE_ADDRESS}/24",
            "systemd.machine_id=firmware net.ifnames=0 console=ttyS0,115200",
            "quiet loglevel=4 systemd.getty_auto=no systemd.firstboot=off",
        ]
        kernel = self._file(self._contents.kernel)
        command = [
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35"),
            *(*processors(self.accelerator, 2), "-m", f"{self.memory_mib}M"),
            *("-uuid", "f1000000-0000-4000-8000-000000000001", "-device", "virtio-rng-pci"),
            *("-kernel", str(kernel), "-initrd", str(self._work / "stage1-floor.img")),
            *("-append", " ".join(arguments), "-serial", f"file:{self._work / 'console.log'}"),
            *("-netdev", f"tap,id=net0,ifname={TAP},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=net0,mac={MAC}"),
        ]
        argv = self.tools.command(command, binds=[kernel.parent, self._work])
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *argv], stdin=subprocess.DEVNULL)

    def root_bytes(self) -> int:
        """Of all layers."""
        return sum(layer.size_bytes for layer in self._contents.layers)

    @property
    def _contents(self) -> ImageContents:
        digest = self.folder.name.replace("-", ":", 1)
        return read_manifest((self.folder / "manifest").read_bytes(), digest, os.uname().machine)

    def _file(self, part: ImageFile) -> Path:
        return self.folder.parent / part.path

    @property
    def _work(self) -> Path:
        return self.state.directory / "floor"
