"""The long form of a DPU's boot: the whole image of images/dpu, up to a Ready node whose network agent has begun.

    python -m tests.soak.dpu [--host]

The first run installs the image's packages under emulation and compiles a kubelet for arm64: about a quarter of an hour
on two cores. With --host an x86-64 server boots behind it, which waits until the DPU is Ready.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any, Final

from provisioner.api import DPUNetwork
from provisioner.api.schema import API_VERSION
from provisioner.cli.lab.parts import demo_state
from provisioner.cluster.resources import NODES, of
from provisioner.lab.binaries.obtain import find_binaries
from provisioner.network.agent.naming import vrf_name, vxlan_name
from tests.journey.virtual_rack import VirtualRack, lab_command
from tests.tools import lab_tools

BOOT_SECONDS: Final = 1500


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.soak.dpu", description=__doc__.splitlines()[0])
    parser.add_argument("--host", action="store_true", help="boot the server in which the DPU sits, too")
    options = parser.parse_args(arguments)
    state = demo_state(f"dpu{os.getpid()}")
    servers = "UEFI,DPU" if options.host else "DPU"
    dpu = "r01-u02" if options.host else "r01-u01"
    try:
        subprocess.run(
            lab_command("up", "--name", state.name, f"--servers={servers}", f"--timeout={BOOT_SECONDS}"),
            check=True,
            stdin=subprocess.DEVNULL,
        )
        binaries = find_binaries(assets=None, cache=state.cache, tools_root=lab_tools().root, report=print)
        wrong = what_is_wrong(VirtualRack(state, binaries.kubectl), dpu)
        print("\n".join(wrong) or f"{dpu} is a Ready node of arm64")
        return 1 if wrong else 0
    finally:
        subprocess.run(lab_command("down", "--name", state.name), check=False)


def what_is_wrong(rack: VirtualRack, dpu: str) -> list[str]:
    """Words for each thing that a DPU which has booted must have and this one has not."""
    node = rack.look(NODES, dpu)
    said = node["status"]["nodeInfo"]
    print(f"{dpu}: {said['osImage']}, kernel {said['kernelVersion']}, kubelet {said['kubeletVersion']}")
    print(rack.timeline(dpu))
    wrong = []
    if said["architecture"] != "arm64":
        wrong.append(f"node {dpu} is of {said['architecture']}, not arm64")
    if node["metadata"]["labels"].get("provisioner.dev/pool") != "dpu":
        wrong.append(f"node {dpu} is not in the pool dpu")
    return wrong + what_is_wrong_with_its_network(rack, dpu)


def what_is_wrong_with_its_network(rack: VirtualRack, dpu: str) -> list[str]:
    """Its host is attached to a VPC: the agent on the DPU has to confirm it, by the kernel, but for the port that it
    has none of: there is no card here."""
    server = rack.server(dpu)
    assert server.spec.dpu is not None
    host = server.spec.dpu.host_ref
    vtep = {"spec": {"dpu": {"hostRef": host, "vtepAddress": server.status.address}}}
    rack.kubectl("patch", "server", dpu, "--type=merge", "-p", json.dumps(vtep))
    rack.kubectl(*("patch", "server", host, "--type=merge", "-p"), '{"spec":{"tenant":"blue","acceptance":"Accepted"}}')
    rack.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue"}})
    for kind, name, namespace, spec in (
        ("NetworkPool", "default", None, {"vniRanges": [{"first": 10000, "last": 10999}]}),
        ("VPC", "main", "blue", {"cidrs": ["10.1.0.0/24"], "mtuBytes": 1450}),
        ("VPCAttachment", host, "blue", {"vpcRef": "main", "serverRef": host, "addresses": ["10.1.0.3"]}),
    ):
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        rack.create({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
    began = time.monotonic()
    network: dict[str, Any] = {}

    def is_confirmed() -> bool:
        network.clear()
        network.update(rack.look(of(DPUNetwork), dpu))
        status = network.get("status") or {}
        return bool(network["spec"].get("ports")) and (
            status.get("observedGeneration") == network["metadata"]["generation"]
        )

    try:
        rack.wait(f"the agent of {dpu} confirms its DPUNetwork", is_confirmed, seconds=300)
    except AssertionError as error:
        return [str(error), json.dumps(network.get("status"), indent=1)]
    status = network["status"]
    print(f"the agent confirmed after {time.monotonic() - began:.0f} s: {json.dumps(status)}")
    (applied,) = [each for each in status["conditions"] if each["type"] == "Applied"]
    wrong = [] if applied["reason"] == "PortMissing" else [f"the agent says {applied}, not that the port is missing"]
    if {port["state"] for port in status["ports"]} != {"Isolated"}:
        wrong.append(f"a port that is not there is {status['ports']}, not isolated")
    (vni,) = status["vnis"]
    wanted, devices = {vrf_name(vni), vxlan_name(vni)}, set[str]()

    def are_seen() -> bool:
        """By the kubelet, which looks every ten seconds."""
        summary = json.loads(rack.kubectl("get", "--raw", f"/api/v1/nodes/{dpu}/proxy/stats/summary"))
        devices.update(each["name"] for each in summary["node"]["network"]["interfaces"])
        return wanted <= devices

    try:
        rack.wait(f"{wanted} are devices of {dpu}", are_seen, seconds=60, every_seconds=3)
    except AssertionError:
        wrong.append(f"the VPC's VRF and VXLAN are not among the devices {sorted(devices)}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
