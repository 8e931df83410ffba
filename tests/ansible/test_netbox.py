"""NetBox's export as a packing list: the shapes of its APIs, and all that is wrong at once."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.ansible.runs import SOURCE
from tests.golden_files import assert_golden

pytestmark = pytest.mark.programs


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


convert = load(SOURCE / "plugins/filter/netbox.py").netbox_packing_list


def device(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"r01-u{number:02d}.example.com",
        "serial": f"S{number}",
        "position": float(number),
        "rack": {"id": 1, "name": "R 01"},
        "role": {"slug": "gpu-server"},
        "status": {"value": "active"},
        "oob_ip": {"address": f"10.90.0.{number}/24"},
        "custom_fields": {"node_pool": None},
    } | more


def interface(number: int, name: str, last: int, **more: Any) -> dict[str, Any]:
    return {
        "device": {"id": number, "name": f"r01-u{number:02d}.example.com"},
        "name": name,
        "mac_address": f"52:54:00:80:{number:02X}:{last:02X}",
        "mgmt_only": False,
        "tags": [],
    } | more


def page(*results: dict[str, Any], following: str | None = None) -> dict[str, Any]:
    return {"count": len(results), "next": following, "previous": None, "results": list(results)}


REST = {
    "devices": page(device(1), device(2, custom_fields={"node_pool": "h200"}), device(3, status={"value": "offline"})),
    "interfaces": page(
        interface(1, "eth0", 1),
        interface(1, "bmc", 2, mgmt_only=True),
        interface(2, "eth0", 1),
        interface(2, "eth1", 2, tags=[{"slug": "pxe"}]),
        interface(2, "ib0", 3, mac_address=None),
    ),
}


def test_golden_packing_list_of_a_rest_export() -> None:
    assert_golden("ansible/netbox.json", json.dumps(convert(REST, pool="gpu"), indent=2) + "\n")


def test_a_graphql_answer_and_separate_pages_and_mac_objects_give_the_same() -> None:
    def nested(device: dict[str, Any]) -> dict[str, Any]:
        own = [i for i in REST["interfaces"]["results"] if i["device"]["id"] == device["id"]]
        return device | {"interfaces": own}

    def of_netbox_4(interface: dict[str, Any]) -> dict[str, Any]:
        mac = interface["mac_address"] and {"mac_address": interface["mac_address"]}
        return interface | {"mac_address": None, "primary_mac_address": mac}

    expected = convert(REST, pool="gpu")
    devices, interfaces = REST["devices"]["results"], REST["interfaces"]["results"]
    assert convert({"data": {"device_list": [nested(each) for each in devices]}}, pool="gpu") == expected
    assert convert({"devices": [page(each) for each in devices], "interfaces": interfaces}, pool="gpu") == expected
    assert convert({"devices": devices, "interfaces": [of_netbox_4(i) for i in interfaces]}, pool="gpu") == expected


def test_everything_wrong_is_told_at_once_with_what_to_do() -> None:
    bad = {
        "devices": page(
            device(1, name=None),
            device(2, rack=None),
            device(3),
            device(4),
            device(5, name="under_score"),
            device(6),
        ),
        "interfaces": page(
            *(interface(number, "eth0", 1) for number in (1, 2, 5, 6)),
            interface(3, "eth0", 1),
            interface(3, "eth1", 2),
            interface(4, "eth0", 1, mac_address="52:54:00"),
        ),
    }
    with pytest.raises(Exception, match="5 devices of it") as raised:
        convert(bad)
    told = str(raised.value).splitlines()[1:]
    expected = ["device 1: its name is None", "it is in no rack", "not clear (eth0, eth1)", "'52:54:00'", "under_score"]
    assert len(told) == len(expected)
    for line, words in zip(told, expected, strict=True):
        assert words in line
        assert ", expected " in line
        assert "; " in line, "it has no remedy"


@pytest.mark.parametrize(
    ("export", "words"),
    [
        ({"devices": page(device(1), following="https://netbox/?offset=50"), "interfaces": []}, "offset=50 behind it"),
        ({"device": []}, "expected devices and interfaces"),
        ({"devices": [], "interfaces": []}, "has no device that is meant"),
    ],
)
def test_an_export_that_is_not_whole_is_refused(export: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=words):
        convert(export)


def test_only_the_roles_that_are_meant_and_the_interface_that_is_named() -> None:
    with pytest.raises(Exception, match="no device that is meant"):
        convert(REST, roles=["switch"])
    [_, second] = convert(REST, roles=["gpu-server"], boot_interface="eth0")["servers"]
    assert second["bootMACAddress"] == "52:54:00:80:02:01"
    ipmi = convert(REST, rack="r09", bmc_scheme="ipmi")["servers"][0]
    assert (ipmi["rackRef"], ipmi["bmc"]["address"], ipmi["bmc"]["protocol"]) == ("r09", "ipmi://10.90.0.1", "IPMI")
