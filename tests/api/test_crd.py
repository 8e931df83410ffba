"""The CustomResourceDefinitions: their text, and what the API server makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from provisioner.api import KINDS, Image, Rack, Server
from provisioner.api.crd import all_crds, crds_yaml
from provisioner.api.servers.server import BMC
from provisioner.cli.service.manifests import crds
from provisioner.cluster.resources import CRDS, of
from tests.api.objects import image, rack, server

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster


def test_the_command_prints_every_definition() -> None:
    printed = CliRunner().invoke(crds, [])
    assert printed.exit_code == 0
    assert list(yaml.safe_load_all(printed.output)) == all_crds()


def _schemas(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, property_ in schema.get("properties", {}).items():
        yield from _schemas(property_, f"{path}.{name}")
    for below in ("items", "additionalProperties"):
        if below in schema:
            yield from _schemas(schema[below], f"{path}[]")


ALL_SCHEMAS = [
    (f"{crd['spec']['names']['kind']}{path}", schema)
    for crd in all_crds()
    for part in ("spec", "status")
    for path, schema in _schemas(
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part], f".{part}"
    )
]


def test_every_field_is_explained_and_bounded() -> None:
    """`kubectl explain` has words for it, and a writer cannot fill etcd or make a CEL rule dear."""
    unexplained = [path for path, schema in ALL_SCHEMAS if not schema.get("description") and not path.endswith("]")]
    unbounded = [
        path
        for path, schema in ALL_SCHEMAS
        if (schema.get("type") == "string" and not {"maxLength", "enum", "format", "pattern"} & set(schema))
        or (schema.get("type") == "array" and "maxItems" not in schema)
        or ("additionalProperties" in schema and "maxProperties" not in schema)
    ]
    assert (unexplained, unbounded) == ([], [])


def test_every_rule_has_words_of_its_own() -> None:
    messages = [rule["message"] for _, schema in ALL_SCHEMAS for rule in schema.get("x-kubernetes-validations", ())]
    assert len(messages) > 100
    assert all(len(message) > 20 and "\n" not in message for message in messages)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.KIND.kind)
def test_the_api_server_establishes_each_kind(kind: type, cluster: Cluster) -> None:
    crd = cluster.get(CRDS, f"{of(kind).plural}.provisioner.dev")
    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert conditions.get("NonStructuralSchema") is None
    assert crd["status"]["acceptedNames"]["categories"] == ["provisioner"]


def test_defaults_are_those_of_the_dataclasses(cluster: Cluster, unique: str) -> None:
    body = server(unique, bmc={"address": "https://10.90.0.11"})
    stored = cluster.apply(body, manager="tests")["spec"]
    typed = cluster.read(Server, unique).spec
    assert {"acceptance": "Pending", "powerState": "On", "architecture": "x86_64"}.items() <= stored.items()
    assert stored["bmc"] == {"address": "https://10.90.0.11", "protocol": "Redfish", "bootMethod": "Pxe"}
    assert (typed.acceptance, typed.power_state, typed.bmc) == ("Pending", "On", BMC(address="https://10.90.0.11"))
    cluster.delete(of(Server), unique)


def test_unknown_fields_are_pruned_and_status_is_a_subresource(cluster: Cluster, unique: str) -> None:
    body = rack(unique, colour="red") | {"status": {"servers": 7}}
    stored = cluster.create(of(Rack), body)
    assert "colour" not in stored["spec"]
    assert "status" not in stored
    cluster.apply_status(Rack, unique, {"servers": 7}, manager="tests")
    assert cluster.read(Rack, unique).status.servers == 7
    cluster.delete(of(Rack), unique)


def test_servers_are_selected_by_rack_and_mac_address(cluster: Cluster, unique: str) -> None:
    cluster.apply(server(f"{unique}-a", rackRef=unique, bootMACAddress="52:54:00:00:aa:01"), manager="tests")
    cluster.apply(server(f"{unique}-b", rackRef="other", bootMACAddress="52:54:00:00:aa:02"), manager="tests")
    found = cluster.list(of(Server), field_selector=f"spec.rackRef={unique}").items
    assert [item["metadata"]["name"] for item in found] == [f"{unique}-a"]
    for name in ("a", "b"):
        cluster.delete(of(Server), f"{unique}-{name}")


def test_two_managers_own_their_own_conditions(cluster: Cluster, unique: str) -> None:
    cluster.apply(image(unique), manager="tests")
    condition = {"status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    for manager, type_ in (("one", "Available"), ("two", "Verified")):
        cluster.apply_status(Image, unique, {"conditions": [{"type": type_, **condition}]}, manager=manager)
    assert {c.type for c in cluster.read(Image, unique).status.conditions} == {"Available", "Verified"}
    cluster.delete(of(Image), unique)


def test_the_printed_yaml_is_stable() -> None:
    assert crds_yaml() == crds_yaml()
    assert crds_yaml().startswith("---\napiVersion: apiextensions.k8s.io/v1\n")
