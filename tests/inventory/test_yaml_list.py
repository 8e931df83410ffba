"""Packing lists in YAML: whole objects, and the compact form."""

from __future__ import annotations

import pytest

from provisioner.inventory.lists.entries import BadPackingList, PackingList
from provisioner.inventory.lists.packing_list import read_packing_list

COMPACT = """\
rack:
  name: r01
  site: dc1
  subnets:
  - {name: boot, cidr: 10.80.0.0/24, gateway: 10.80.0.1, mtu: 9000}
defaults:
  nodePoolRef: gpu
  bmc: {credentialsName: r01-bmc}
servers:
- name: r01-u01
  bootMACAddress: 52:54:00:12:34:56
  serialNumber: 0012
  bmc: {address: https://10.90.0.1}
- name: r01-u02
  bootMACAddress: 52-54-00-12-34-AA
  nodePoolRef: other
  bmc: {address: https://10.90.0.2}
"""


def read(text: str, file: str = "r01.yaml") -> PackingList:
    return read_packing_list(text.encode(), file)


def test_the_compact_form_is_short_for_objects() -> None:
    entries = read(COMPACT).entries
    assert [(entry.kind, entry.name, entry.origin.line) for entry in entries] == [
        ("Rack", "r01", 2),
        ("Server", "r01-u01", 10),
        ("Server", "r01-u02", 14),
    ]
    assert entries[0].spec["subnets"] == [{"name": "boot", "cidr": "10.80.0.0/24", "gateway": "10.80.0.1", "mtu": 9000}]
    assert entries[1].spec == {
        "rackRef": "r01",
        "nodePoolRef": "gpu",
        "bmc": {"credentialsName": "r01-bmc", "address": "https://10.90.0.1"},
        "bootMACAddress": "52:54:00:12:34:56",
        "serialNumber": "0012",
    }
    assert entries[2].spec["bootMACAddress"] == "52:54:00:12:34:aa"
    assert entries[2].spec["nodePoolRef"] == "other"


def test_a_mac_address_without_quotes_is_no_number_to_the_base_60() -> None:
    """yaml.safe_load makes 41135250896 of it."""
    assert read(COMPACT).entries[1].spec["bootMACAddress"] == "52:54:00:12:34:56"


def test_a_switch_is_a_switch_and_no_word() -> None:
    """The API server takes no string for it."""
    text = "rack: r01\nservers:\n- {name: a, bootMACAddress: 52:54:00:00:00:01, bmc: {address: b, allowPlainHTTP: %s}}"
    (entry,) = read(text % "true").entries
    assert entry.spec["bmc"]["allowPlainHTTP"] is True
    with pytest.raises(BadPackingList) as bad:
        read(text % "yes")
    (mistake,) = bad.value.mistakes
    assert str(mistake) == "r01.yaml:3: server.bmc.allowPlainHTTP is 'yes', expected true or false; write one of them"


def test_servers_of_a_rack_that_exists() -> None:
    entries = read("rack: r01\nservers:\n- {name: a, bootMACAddress: 52:54:00:00:00:01}\n").entries
    assert [(entry.kind, entry.spec.get("rackRef")) for entry in entries] == [("Server", "r01")]


@pytest.mark.parametrize("null", ["", "~", "null"])
def test_a_field_that_is_null_is_unset_and_one_in_quotes_is_a_text(null: str) -> None:
    text = "rack: r01\nservers:\n- {name: a, bootMACAddress: 52:54:00:00:00:01, bmc: %s, position: %s}\n"
    (entry,) = read(text % (null, null)).entries
    assert entry.spec == {"rackRef": "r01", "bootMACAddress": "52:54:00:00:00:01"}
    (entry,) = read(text % (null, f'"{null}"')).entries
    assert entry.spec["position"] == null


WHOLE = """\
apiVersion: provisioner.dev/v1alpha1
kind: Rack
metadata: {name: r01, labels: {room: a}}
spec:
  subnets: [{name: boot, cidr: 10.80.0.0/24}]
---
apiVersion: v1
kind: List
items:
- apiVersion: provisioner.dev/v1alpha1
  kind: Server
  metadata: {name: r01-u01}
  spec: {rackRef: r01, bootMACAddress: 52:54:00:12:34:56}
---
"""


def test_whole_objects_are_those_of_kubectl_apply() -> None:
    rack, server = read(WHOLE).entries
    assert rack.body() == {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Rack",
        "metadata": {"name": "r01", "labels": {"room": "a"}},
        "spec": {"subnets": [{"name": "boot", "cidr": "10.80.0.0/24"}]},
    }
    assert (server.name, server.origin.line) == ("r01-u01", 10)


@pytest.mark.parametrize("file", ["r01.yaml", "r01", "standard input"])
def test_yaml_is_recognised_by_name_or_content(file: str) -> None:
    assert len(read(COMPACT, file).entries) == 3


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("rack: [\n", ["r01.yaml:2: not YAML"]),
        ("- a\n", ["r01.yaml:1: the document is a list, expected a mapping"]),
        (
            "rack: r01\nserver: []\n",
            ["r01.yaml:2: the document has a field server, expected a field of the API; write servers"],
        ),
        ("servers: 7\n", ["r01.yaml:1: servers is '7', expected a list"]),
        ("servers:\n- {bootMACAddress: 52:54:00:00:00:01}\n", ["r01.yaml:2: a server without a name"]),
        ("servers:\n- {name: ~}\n", ["r01.yaml:2: a server without a name"]),
        (
            "servers:\n- name: a\n  bootMacAddress: 52:54:00:00:00:01\n  position: [1]\n  interfaces: x\n",
            [
                "r01.yaml:3: server has a field bootMacAddress, expected a field of the API; write bootMACAddress",
                "r01.yaml:4: server.position is a list, expected a single value",
                "r01.yaml:5: server.interfaces is 'x', expected a list",
            ],
        ),
        (
            "servers:\n- name: a\n  bootMACAddress: 52:54:00:00\n  serialNumber: x\n  serialNumber: y\n",
            [
                "r01.yaml:3: MAC address '52:54:00:00' is not six bytes",
                "r01.yaml:5: serialNumber occurs twice in server",
            ],
        ),
        (
            "rack: {name: r, subnets: [{mtu: big}]}\n",
            ["r01.yaml:1: rack.subnets[0].mtu is 'big', expected a whole number"],
        ),
        (
            "kind: Pod\n",
            ["r01.yaml:1: kind Pod, expected one of Rack, Server; apply other kinds with kubectl apply"],
        ),
        (
            "kind: Server\nmetadata: {name: a}\nspec: {}\n",
            ["r01.yaml:1: apiVersion missing, expected provisioner.dev/v1alpha1"],
        ),
        ("apiVersion: provisioner.dev/v1alpha1\nkind: Server\nspec: {}\n", ["r01.yaml:1: Server without a name"]),
        (
            "apiVersion: provisioner.dev/v1alpha1\nkind: Server\nmetadata: {name: a}\n",
            ["r01.yaml:1: Server a without spec"],
        ),
    ],
)
def test_every_mistake_has_its_line(text: str, mistakes: list[str]) -> None:
    with pytest.raises(BadPackingList) as bad:
        read(text)
    found = [str(mistake) for mistake in bad.value.mistakes]
    assert len(found) == len(mistakes)
    assert all(whole.startswith(start) for whole, start in zip(found, mistakes, strict=True)), found
