"""The virtual rack's packing list is one that `provisioner rack register` reads."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab.machine.machine import Accelerator
from lab.network import LabNetwork
from lab.rack import VirtualRack
from lab.rack_description import describe_rack, processors_of_each
from lab.tools import Tools
from provisioner.api.machinery.values import Secret
from provisioner.inventory.lists.packing_list import read_packing_list


def test_the_packing_list_says_the_same_as_the_objects(tools: Tools, tmp_path: Path) -> None:
    rack = VirtualRack(describe_rack(Secret("x")), network=LabNetwork("none"), tools=tools, directory=tmp_path / "rack")
    rack.prepare(datetime.now(UTC))
    read = read_packing_list(rack.packing_list().encode(), "r01.csv", pool="gpu")
    wanted = {body["metadata"]["name"]: body["spec"] for body in rack.servers("gpu")}
    assert {entry.name for entry in read.entries} == set(wanted)
    for entry in read.entries:
        spec = wanted[entry.name]
        # What no packing list of a vendor has: that is put into the objects afterwards.
        bmc = {key: spec["bmc"][key] for key in ("address", "credentialsName")}
        assert entry.spec | {"acceptance": "Accepted"} == spec | {"bmc": bmc}


@pytest.mark.parametrize(
    ("servers", "accelerator", "cores", "each"),
    [(1, "tcg", 2, 2), (2, "tcg", 2, 1), (2, "tcg", 4, 2), (3, "tcg", 4, 1), (1, "tcg", 1, 1), (3, "kvm", 1, 2)],
)
def test_an_emulated_server_has_two_processors_where_there_are_cores_for_all_of_them(
    servers: int, accelerator: Accelerator, cores: int, each: int
) -> None:
    assert processors_of_each(servers, accelerator, cores) == each
