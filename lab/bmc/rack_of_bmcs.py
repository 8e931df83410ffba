"""The BMCs of a virtual rack: one process, one HTTPS endpoint and one QEMU per server.

    python -m lab.bmc.rack_of_bmcs DIRECTORY --tools FOLDER [--arm64-tools FOLDER] --accelerator tcg|kvm

runs in the lab's network namespace until SIGTERM. The machines are its children and die with it: a BMC that is gone
takes the power with it, which keeps a lab from leaving anything behind. DIRECTORY has rack.json and, per server, its
certificate; the control socket in it takes faults (see `carry_out`).
"""

from __future__ import annotations

import argparse
import json
import logging
import socketserver
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import structlog

from lab.bmc.certificate import server_context
from lab.bmc.endpoint import BmcEndpoint, Credentials
from lab.bmc.server_power import ServerPower
from lab.machine.machine import Accelerator, MachineFiles
from lab.machine.qemu import QemuMachine
from lab.network import host_port_tap_name, tap_name
from lab.rack_description import RackDescription, VirtualServer, from_json
from lab.tools import Tools
from provisioner.api.servers.server import Architecture
from provisioner.node.stop_signals import stop_on_signals

log = structlog.get_logger()

RACK_FILE: Final = "rack.json"
CONTROL_SOCKET: Final = "control.sock"


class RackBmcs:
    """All BMCs of a rack, in this process."""

    def __init__(
        self,
        rack: RackDescription,
        directory: Path,
        tools: Tools,
        accelerator: Accelerator,
        arm64_tools: Tools | None = None,
    ) -> None:
        self._rack = rack
        self._directory = directory
        self._tools: dict[Architecture, Tools] = {"x86_64": tools, "arm64": arm64_tools or tools}
        self._accelerator = accelerator
        self._launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="launcher")
        self._machines: list[QemuMachine] = []
        self.endpoints: dict[str, BmcEndpoint] = {}

    def start(self) -> None:
        for server in self._rack.servers:
            self.endpoints[server.name] = self._endpoint(server)
        for endpoint in self.endpoints.values():
            endpoint.start()
        log.info("BMCs were started", rack=self._rack.name, servers=len(self.endpoints))

    def stop(self) -> None:
        for endpoint in self.endpoints.values():
            endpoint.stop()
        for machine in self._machines:
            machine.power_off()
        self._launcher.shutdown()

    def _endpoint(self, server: VirtualServer) -> BmcEndpoint:
        files = MachineFiles(directory=self._directory / server.name)
        machine = QemuMachine(
            server.machine,
            files,
            tools=self._tools[server.machine.architecture],
            tap=tap_name(server.name),
            accelerator=self._accelerator,
            launcher=self._launcher,
            host_port_tap=host_port_tap_name(server.name),
            tpm_tools=self._tools["x86_64"],
        )
        power = ServerPower(server.name, server.machine.firmware, machine, files.directory / "boot-override.json")
        machine.on_guest_reset = power.guest_reset
        self._machines.append(machine)
        return BmcEndpoint(
            server.machine,
            power,
            Credentials(self._rack.username, self._rack.password),
            address=str(server.bmc_address),
            port=self._rack.bmc_port,
            tls=server_context(files.directory),
        )


def carry_out(endpoints: Mapping[str, BmcEndpoint], request: Mapping[str, Any]) -> dict[str, Any]:
    """One request of the control socket: {"server": NAME, "fault": FAULT, …} → {} or {"error": …}.

    FAULT is PowerCut (the machine is off at once), ResetButton (it starts anew, and nobody asked the BMC), Slow with
    "seconds" (every request waits), ResetsUnavailable (503 to whoever wants it on or off) or None (healthy again).
    Without a server it answers whether the BMCs are up.
    """
    if "server" not in request:
        return {"servers": sorted(endpoints)}
    endpoint = endpoints.get(request["server"])
    if endpoint is None:
        return {"error": f"server {request['server']!r} is not in this rack"}
    match request.get("fault"):
        case "PowerCut":
            endpoint.power.cut_power()
        case "ResetButton":
            endpoint.power.press_reset_button()
        case "Slow":
            endpoint.faults.delay_seconds = float(request["seconds"])
        case "ResetsUnavailable":
            endpoint.faults.resets_unavailable = True
        case "None":
            endpoint.faults.delay_seconds, endpoint.faults.resets_unavailable = 0.0, False
        case other:
            return {"error": f"fault {other!r} is unknown; use PowerCut, ResetButton, Slow, ResetsUnavailable or None"}
    return {}


class _ControlHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        endpoints = cast("_ControlServer", self.server).endpoints
        for line in self.rfile:
            self.wfile.write(json.dumps(carry_out(endpoints, json.loads(line))).encode() + b"\n")


class _ControlServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path, endpoints: Mapping[str, BmcEndpoint]) -> None:
        self.endpoints = endpoints
        path.unlink(missing_ok=True)
        super().__init__(str(path), _ControlHandler)


def main() -> None:
    parser = argparse.ArgumentParser(prog="lab.bmc.rack_of_bmcs")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--arm64-tools", type=Path)
    parser.add_argument("--accelerator", choices=("kvm", "tcg"), default="tcg")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    rack = from_json(json.loads((options.directory / RACK_FILE).read_text()))
    stop = stop_on_signals()
    arm64_tools = Tools(options.arm64_tools) if options.arm64_tools else None
    bmcs = RackBmcs(rack, options.directory, Tools(options.tools), options.accelerator, arm64_tools)
    bmcs.start()
    control = _ControlServer(options.directory / CONTROL_SOCKET, bmcs.endpoints)
    threading.Thread(target=control.serve_forever, name="control", daemon=True).start()
    stop.wait()
    control.shutdown()
    bmcs.stop()


if __name__ == "__main__":
    main()
