"""Other hosts of two tenants, behind one more DPU: namespaces on the lab's boot network, the agent as shipped."""

from __future__ import annotations

import subprocess
import threading
from typing import Any, Final

from lab.binaries.obtain import Binaries
from lab.control_plane.kubelet_files import join_as
from lab.control_plane.plane import ControlPlane
from lab.demo.daemon import API_SERVER_PORT
from lab.demo.leftovers import end_processes_in
from lab.demo.state import ADDRESS, DemoState
from lab.network import BRIDGE, LabNetwork
from lab.virtual_network.namespace import Namespace, ip
from lab.virtual_network.rack import DPU, Host, mac_of
from lab.vpc_demo.greeter import greet, listen
from provisioner.api.machinery.schema import API_VERSION

PORT: Final = 7777
HOST, CARD, VTEP = "r01-u50", "r01-u51", "10.80.0.15"
_FUNCTIONS: Final = {"pf0": "blue", "pf1": "green"}


def tenancy(server: str, own: str, blue: str, green: str) -> list[dict[str, Any]]:
    """Two tenants with the same network. `own`: address of `server` in that of blue; the others: of the peers."""
    mac = mac_of(VTEP, "pf0")
    lent = {"name": "pf1", "tenant": "green", "macAddress": mac}
    registered = {"rackRef": "r01", "acceptance": "Accepted"}
    card = {"hostRef": HOST, "vtepAddress": VTEP, "functions": [lent]}
    return [
        _object("NetworkPool", "default", {"vniRanges": [{"first": 10000, "last": 10999}]}),
        _object("Server", HOST, {**registered, "bootMACAddress": mac, "tenant": "blue"}),
        _object(
            "Server",
            CARD,
            {**registered, "architecture": "arm64", "bootMACAddress": mac.replace("52:54:00", "52:54:01"), "dpu": card},
        ),
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}} for each in ("blue", "green")),
        # The boot network is the underlay here, and carries 1500 bytes.
        *(_object("VPC", "main", {"cidrs": ["10.1.0.0/24"], "mtuBytes": 1450}, each) for each in ("blue", "green")),
        _attachment("blue", server, "pf0", own),
        _attachment("blue", HOST, "pf0", blue),
        _attachment("green", HOST, "pf1", green),
    ]


class Peers:
    """The DPU's agent runs, and both hosts answer on `PORT` with their tenant's name, until `delete`."""

    host, vtep = HOST, VTEP

    def __init__(self, state: DemoState, binaries: Binaries) -> None:
        lab = LabNetwork(state.name)
        self._dpu = DPU(f"{lab.namespace}.peer", VTEP, {each: f"{each}hpf" for each in _FUNCTIONS})
        self.blue, self.green = (Host(f"{lab.namespace}.{each}", mac_of(VTEP, "pf0")) for each in ("blue", "green"))
        self._stop = threading.Event()
        self._greeter: threading.Thread | None = None
        for made in (self._dpu, self.blue, self.green):
            made.create()
        management = Namespace(lab.namespace)
        _cable(self._dpu, "uplink", management, "to-peer")
        management.ip("link", "set", "to-peer", "master", BRIDGE)
        self._dpu.ip("addr", "add", f"{VTEP}/24", "dev", "uplink")
        for host, port in zip((self.blue, self.green), self._dpu.ports.values(), strict=True):
            _cable(host, "eth0", self._dpu, port)
        plane = ControlPlane(
            state.directory / "control-plane", binaries, address=ADDRESS, port=API_SERVER_PORT, scheduler=True
        )
        root = state.directory / CARD
        join_as(root, plane, CARD, CARD)
        with (state.directory / "peer.log").open("wb") as log:
            self._agent = subprocess.Popen(
                self._dpu.agent_command("run", "--root", str(root), "--domains=netns"), stdout=log, stderr=log
            )

    def take(self, *, blue: str, green: str) -> None:
        """What they were given, as a host takes it by hand; from now on they answer."""
        for host, address in ((self.blue, blue), (self.green, green)):
            host.become(mac_of(VTEP, "pf0"), address)
        listening = listen({"blue": self.blue, "green": self.green}, (PORT,))
        self._greeter = threading.Thread(target=greet, args=(listening, self._stop), daemon=True)
        self._greeter.start()

    def delete(self) -> None:
        """Everything."""
        self._stop.set()
        if self._greeter is not None:
            self._greeter.join(10)
        self._agent.terminate()
        try:
            self._agent.wait(30)
        except subprocess.TimeoutExpired:
            self._agent.kill()
        for made in (self.blue, self.green, self._dpu):
            end_processes_in(made.name)
            made.delete()


def _cable(one: Namespace, its: str, other: Namespace, others: str) -> None:
    ip("link", "add", its, "netns", one.name, "type", "veth", "peer", "name", others, "netns", other.name)
    one.ip("link", "set", its, "up")
    other.ip("link", "set", others, "up")


def _attachment(tenant: str, server: str, function: str, address: str) -> dict[str, Any]:
    spec = {"vpcRef": "main", "serverRef": server, "function": function, "addresses": [address]}
    return _object("VPCAttachment", server, spec, tenant)


def _object(kind: str, name: str, spec: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
