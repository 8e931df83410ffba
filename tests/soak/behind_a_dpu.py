"""A server that has no way but its DPU: from firmware into a tenant's network and out of it, on two virtual machines.

    python -m tests.soak.behind_a_dpu

An arm64 machine with UEFI is the DPU: it boots first, joins, and its network agent answers what its host asks for. An
x86-64 machine with UEFI hangs on its second port and on nothing else: it boots, joins and becomes a Ready node through
the DPU, is attached to a tenant's VPC, talks to that tenant's other host and to nobody else, has its power cut and
boots again while it is the tenant's, and is released. The other hosts are namespaces behind a DPU that is one, too
(peers.py).
About a quarter of an hour on two cores, all of it emulated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from typing import Final

from lab.binaries.obtain import find_binaries
from lab.cli.parts import demo_state
from lab.demo.state import ADDRESS
from lab.network import LabNetwork
from provisioner.api import DPUNetwork, NetworkClaim, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.conditions import find_condition
from provisioner.cluster.resources import NODES, of
from provisioner.network.agent.model.naming import vrf_name, vxlan_name
from tests.journey.virtual_rack import VirtualRack, lab_command
from tests.soak.errand import carry_out_on
from tests.soak.peers import PORT, Peers, tenancy
from tests.tools import lab_tools

BOOT_SECONDS: Final = 2400
HOST, DPU = "r01-u01", "r01-u02"
OWN, BLUE_PEER, GREEN_PEER = "10.1.0.3", "10.1.0.5", "10.1.0.7"


def main() -> int:
    state = demo_state(f"behind{os.getpid()}")
    peers = None
    try:
        subprocess.run(
            lab_command("up", "--name", state.name, "--servers=UEFI,ProxyDPU", f"--timeout={BOOT_SECONDS}"),
            check=True,
            stdin=subprocess.DEVNULL,
        )
        binaries = find_binaries(assets=None, cache=state.cache, tools_root=lab_tools().root, report=print)
        rack = VirtualRack(state, binaries.kubectl)
        peers = Peers(state, binaries)
        Journey(rack, peers).go()
        return 0
    except AssertionError as error:
        print(f"WRONG: {error}")
        return 1
    finally:
        if peers is not None:
            peers.delete()
        subprocess.run(lab_command("down", "--name", state.name), check=False)


class Journey:
    """Each step asserts what it shows, and prints it."""

    def __init__(self, rack: VirtualRack, peers: Peers) -> None:
        self._rack, self._peers = rack, peers
        self._began = time.monotonic()

    def go(self) -> None:
        self._booted_through_the_dpu()
        self._attached()
        self._talks_to_its_tenant_alone("after it was attached")
        before = self._rack.node_boot_id(HOST)
        self._rack.kubectl("provision", "power-cycle", HOST)
        self._rack.wait_for_boot(HOST, before)
        self._say(f"booted anew while it is the tenant's: {self._rack.timeline(HOST)}")
        self._talks_to_its_tenant_alone("after it was booted anew")
        self._released()

    def _say(self, words: str) -> None:
        print(f"{time.monotonic() - self._began:5.0f} s  {words}", flush=True)

    def _wait(self, what: str, holds: Callable[[], bool], seconds: float = 300) -> None:
        self._rack.wait(what, holds, seconds=seconds)

    def _booted_through_the_dpu(self) -> None:
        architectures = {
            name: self._rack.look(NODES, name)["status"]["nodeInfo"]["architecture"] for name in (HOST, DPU)
        }
        assert architectures == {HOST: "amd64", DPU: "arm64"}, architectures
        boot = decode(DPUNetwork, self._rack.look(of(DPUNetwork), DPU)).spec.host_boot
        assert boot is not None
        assert boot.server == HOST, boot
        console = self._rack.console(HOST)
        for words in (
            "Start PXE over IPv4",
            "NBP filename is snponly.efi",
            "iPXE",
            f"{HOST} boots cpu-node-",
            "layer base verified",
        ):
            assert words in console, words
            console = console[console.index(words) :]
        for name in (DPU, HOST):
            self._say(f"{name}: {self._rack.timeline(name)}")

    def _attached(self) -> None:
        vtep = self._rack.server(DPU).status.address
        self._rack.kubectl("patch", "server", HOST, "--type=merge", "-p", '{"spec":{"tenant":"blue"}}')
        for document in tenancy(HOST, OWN, BLUE_PEER, GREEN_PEER):
            self._rack.create(document)
        began = time.monotonic()
        for tenant, server in (("blue", HOST), ("blue", self._peers.host), ("green", self._peers.host)):
            self._wait(f"{server} of {tenant} is attached", lambda t=tenant, s=server: self._is_attached(t, s))  # type: ignore[misc]
        self._say(f"attached, behind {vtep} and {self._peers.vtep}: all three after {time.monotonic() - began:.0f} s")
        (vni,) = decode(DPUNetwork, self._rack.look(of(DPUNetwork), DPU)).status.vnis
        devices = vrf_name(vni), vxlan_name(vni)
        self._wait(f"{devices} are on the DPU", lambda: len(self._devices_of_the_dpu(devices)) == 2, seconds=60)
        self._peers.take(blue=BLUE_PEER, green=GREEN_PEER)

    def _is_attached(self, tenant: str, server: str) -> bool:
        body = self._rack.look(of(VPCAttachment), server, namespace=tenant)
        found = find_condition(decode(VPCAttachment, body).status.conditions, "Ready")
        return found is not None and found.status == "True"

    def _talks_to_its_tenant_alone(self, when: str) -> None:
        """What it must not reach listens: this machine reaches it."""
        dpu = self._rack.server(DPU).status.address
        bmc = str(self._rack.server(HOST).spec.bmc.address).removeprefix("https://")  # type: ignore[union-attr]
        refused = {
            "its DPU's kubelet": (dpu, 10250),
            "its BMC": (bmc, 443),
            "the boot host's port for DPUs": (ADDRESS, 8444),
        }
        for what, (address, port) in refused.items():
            assert self._answers_here(str(address), port), f"{what} does not listen at {address}:{port}"
        asked = {
            "its peer": (BLUE_PEER, PORT),
            "the API server": (ADDRESS, 6443),
            "the other tenant": (GREEN_PEER, PORT),
        }
        found = carry_out_on(self._rack, HOST, OWN, {**asked, **refused})
        self._say(f"{when}: {found}")
        wanted = dict.fromkeys((*asked, *refused), "no answer") | {
            "its peer": "blue",
            "the API server": "connected",
        }
        assert found == wanted, f"{when} it found {found}, not {wanted}"
        assert self._peers.blue.pings(OWN), "its peer reaches it"
        assert self._peers.green.reaches_nothing_at(OWN), "the other tenant does not"

    def _answers_here(self, address: str, port: int) -> bool:
        tried = f"import socket; socket.create_connection(('{address}', {port}), 5)"
        command = LabNetwork(self._rack.state.name).command([sys.executable, "-c", tried])
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _released(self) -> None:
        before = self._rack.node_boot_id(HOST)
        (vni,) = decode(DPUNetwork, self._rack.look(of(DPUNetwork), DPU)).status.vnis
        self._rack.kubectl("delete", "vpca", HOST, "-n", "blue")

        def is_let_go() -> bool:
            network = decode(DPUNetwork, self._rack.look(of(DPUNetwork), DPU))
            claims = self._rack.ask(lambda cluster: cluster.read_all(NetworkClaim))
            return (
                not network.spec.ports
                and network.status.observed_generation == network.metadata.generation
                and not [each.name for each in claims if DPU in each.name or each.name.endswith(f".{OWN}")]
            )

        self._wait("its DPU has let go of it, and its values are free", is_let_go)
        assert self._peers.blue.reaches_nothing_at(OWN), "who was its peer reaches it no more"
        devices = vrf_name(vni), vxlan_name(vni)
        self._wait(f"{devices} are gone from the DPU", lambda: not self._devices_of_the_dpu(devices), seconds=60)
        # For longer than it takes until a node whose kubelet is silent is not Ready any more.
        time.sleep(60)
        conditions = self._rack.look(NODES, HOST)["status"]["conditions"]
        (ready,) = [each for each in conditions if each["type"] == "Ready"]
        assert ready["status"] == "True", "its kubelet goes on through the boot plane"
        assert self._rack.node_boot_id(HOST) == before
        self._say("released; its node is Ready as before")

    def _devices_of_the_dpu(self, wanted: Collection[str]) -> list[str]:
        """Those of `wanted` that it has, as its kubelet says, which looks every ten seconds."""
        said = json.loads(self._rack.kubectl("get", "--raw", f"/api/v1/nodes/{DPU}/proxy/stats/summary"))
        return [each["name"] for each in said["node"]["network"]["interfaces"] if each["name"] in wanted]


if __name__ == "__main__":
    sys.exit(main())
