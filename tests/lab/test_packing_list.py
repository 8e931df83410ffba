"""The virtual rack's packing list is one that `provisioner rack register` reads."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from provisioner.api.values import Secret
from provisioner.inventory.lists.packing_list import read_packing_list
from provisioner.lab.network import LabNetwork
from provisioner.lab.rack import VirtualRack
from provisioner.lab.rack_description import describe_rack
from provisioner.lab.tools import Tools


def test_the_packing_list_says_the_same_as_the_objects(tmp_path: Path) -> None:
    rack = VirtualRack(
        describe_rack(Secret("x")), network=LabNetwork("none"), tools=Tools(tmp_path), directory=tmp_path / "rack"
    )
    rack.prepare(datetime.now(UTC))
    read = read_packing_list(rack.packing_list().encode(), "r01.csv", pool="gpu")
    wanted = {body["metadata"]["name"]: body["spec"] for body in rack.servers("gpu")}
    assert {entry.name for entry in read.entries} == set(wanted)
    for entry in read.entries:
        spec = wanted[entry.name]
        # What no packing list of a vendor has: that is put into the objects afterwards.
        bmc = {key: spec["bmc"][key] for key in ("address", "credentialsName")}
        assert entry.spec | {"acceptance": "Accepted"} == spec | {"bmc": bmc}
