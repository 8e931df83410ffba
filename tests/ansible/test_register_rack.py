"""Playbook register_rack: from a vendor's CSV and from NetBox's export into a real API server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import Rack, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import BMC_SECRETS, SECRETS, of
from tests.ansible.runs import Installed, Run

pytestmark = pytest.mark.long

PLAYBOOK = "provisioner.provisioner.register_rack"
PASSWORD = "p4ss-of-the-bmc"


@pytest.mark.parametrize("source", ["list", "netbox"])
def test_a_rack_of_an_export_is_registered_once_and_bad_rows_are_told_at_once(
    collection: Installed, control_plane: ControlPlane, cluster: Cluster, tmp_path: Path, unique: str, source: str
) -> None:
    file = tmp_path / ("rack.csv" if source == "list" else "rack.json")
    names = [f"{unique}-u01", f"{unique}-u02"]

    def run(macs: list[str], *words: str) -> Run:
        file.write_text(csv(names, macs) if source == "list" else netbox(names, macs))
        subnets = [{"name": "boot", "cidr": f"10.{int(unique[1:3], 16)}.{int(unique[3:5], 16)}.0/24"}]
        credentials = {names[0]: {"username": "root", "password": PASSWORD}}
        given = {f"provisioner_{source}": str(file), "provisioner_rack": unique, "provisioner_subnets": subnets}
        given |= {"provisioner_pool": "gpu", "provisioner_kubeconfig": str(control_plane.kubeconfig)}
        if source == "netbox":
            given["provisioner_bmc_credentials"] = credentials
        variables = tmp_path / "variables.json"
        variables.write_text(json.dumps(given))
        return collection.play(PLAYBOOK, "-e", f"@{variables}", *words)

    good = [f"52:54:{unique[1:3]}:{unique[3:5]}:{unique[5:7]}:{last}" for last in ("01", "02")]
    bad = run(["52:54:00", "no-mac"])
    assert bad.code != 0
    assert "52:54:00" in bad.failed[0].result["msg"]
    assert "no-mac" in bad.failed[0].result["msg"]
    assert len(run(good, "--check").changed) == 1
    assert cluster.find(of(Rack), unique) is None

    first = run(good, "--diff")
    assert (first.code, len(first.changed)) == (0, 1), first.output
    assert PASSWORD not in first.output
    found = [cluster.get(of(Server), name)["spec"] for name in names]
    assert [spec["bootMACAddress"] for spec in found] == good
    assert {(spec["rackRef"], spec["nodePoolRef"], spec["acceptance"]) for spec in found} == {
        (unique, "gpu", "Accepted")
    }
    if source == "netbox":
        assert found[0]["bmc"]["credentialsName"] == f"{names[0]}-bmc"
        cluster.delete(SECRETS, f"{names[0]}-bmc", namespace=BMC_SECRETS)
    else:
        again = run(good)
        assert (again.code, again.changed) == (0, []), again.output
    for name in names:
        cluster.delete(of(Server), name)
    cluster.delete(of(Rack), unique)


def csv(names: list[str], macs: list[str]) -> str:
    rows = [f"{name},u{number:02d},{mac}" for number, (name, mac) in enumerate(zip(names, macs, strict=True), start=1)]
    return "\n".join(["Hostname,Position,MAC Address", *rows, ""])


def netbox(names: list[str], macs: list[str]) -> str:
    ids = range(1, len(names) + 1)
    devices = [
        {"id": i, "name": name, "rack": {"name": "r"}, "oob_ip": {"address": f"10.90.0.{i}/24"}}
        for i, name in zip(ids, names, strict=True)
    ]
    interfaces = [{"device": {"id": i}, "name": "eth0", "mac_address": mac} for i, mac in zip(ids, macs, strict=True)]
    return json.dumps({"devices": devices, "interfaces": interfaces})
