"""Records what real firmware, iPXE and kernel measure: `python -m tests.attestation.record_boots --help`, as root.

Writes event logs, and what they are of, into tests/attestation/recorded. Each boot takes half a minute.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from lab.cli.parts import demo_state
from lab.machine.machine import Firmware
from lab.tools import Tools, obtain_tools
from provisioner.attestation.authenticode import authenticode_sha256
from tests.attestation.bare_boot import ARGUMENTS, BareBoot

RECORDED: Final = Path(__file__).parent / "recorded"
BOOTS: Final[dict[str, tuple[Firmware, bool]]] = {
    "ovmf-pxe": ("UEFI", False),
    "ovmf-http": ("UEFI", True),
    "seabios-pxe": ("BIOS", False),
}
_PACKAGES: Final = ("ovmf", "seabios", "ipxe", "ipxe-qemu", "qemu-system-x86", "swtpm", "libtpms0")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", type=Path, required=True, help="bzImage of Debian")
    parser.add_argument("--kernel-package", required=True, help="its package and version, for the note")
    options = parser.parse_args()
    tools = obtain_tools(demo_state("tests").cache)
    found: dict[str, Any] = {"packages": {**_versions(tools), "linux": options.kernel_package}, "boots": {}}
    for name, (firmware, by_http) in BOOTS.items():
        with tempfile.TemporaryDirectory(prefix="boot-") as folder:
            bare = BareBoot(tools, options.kernel, Path(folder), firmware)
            with bare.site() as network:
                told = bare.boot(network, by_http=by_http)
            found["boots"][name] = {"pcrs": {str(pcr): value for pcr, value in told.pcrs.items()}}
            (RECORDED / f"{name}.eventlog").write_bytes(told.event_log)
            found["initrd"] = f"sha256:{hashlib.sha256(bare.initramfs()).hexdigest()}"
    found["kernelName"], found["arguments"] = "vmlinuz", ARGUMENTS
    found["kernel"] = authenticode_sha256(options.kernel.read_bytes())
    found["ipxe"] = authenticode_sha256(tools.path("/usr/lib/ipxe/snponly.efi").read_bytes())
    (RECORDED / "boots.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _versions(tools: Tools) -> dict[str, str]:
    status = (tools.root / "var/lib/dpkg/status").read_text()
    found = dict(re.findall(r"^Package: (\S+)\n(?:.+\n)*?Version: (\S+)$", status, re.MULTILINE))
    return {name: found[name] for name in _PACKAGES}


if __name__ == "__main__":
    sys.exit(main())
