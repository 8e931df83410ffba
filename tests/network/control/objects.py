"""Good objects of tenant networks, as small as they may be, for tests to change."""

from __future__ import annotations

from typing import Any

from tests.api.objects import API, dpu, server


def tenants_server(name: str, tenant: str, number: int) -> dict[str, Any]:
    mac = f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"
    return server(name, rackRef="r01", bootMACAddress=mac, tenant=tenant)


def card(name: str, host: str, number: int, acceptance: str = "Accepted", **changes: Any) -> dict[str, Any]:
    """A DPU. changes: of its spec.dpu."""
    mac = f"52:54:01:00:{number >> 8:02x}:{number & 255:02x}"
    vtep = f"10.255.{number >> 8}.{number & 255}"
    given = {"hostRef": host, "vtepAddress": vtep} | changes
    return dpu(name, given, bootMACAddress=mac, acceptance=acceptance)


def in_namespace(kind: str, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in spec.items() if value is not None}
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": kept}


def vpc(namespace: str, name: str = "main", **changes: Any) -> dict[str, Any]:
    return in_namespace("VPC", namespace, name, {"cidrs": ["10.1.0.0/24"], "mtuBytes": 1450} | changes)


def attachment(namespace: str, name: str, server_ref: str, **changes: Any) -> dict[str, Any]:
    spec = {"vpcRef": "main", "serverRef": server_ref, "function": "pf0"} | changes
    return in_namespace("VPCAttachment", namespace, name, spec)


def group(namespace: str, name: str, *rules: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return in_namespace("SecurityGroup", namespace, name, {"rules": list(rules), "stateful": True} | changes)


def rule(direction: str = "Ingress", action: str = "Allow", **changes: Any) -> dict[str, Any]:
    return {"direction": direction, "action": action, "protocol": "Any", "priority": 1000} | changes


API_OBJECT = {"apiVersion": API}


def claim(name: str, type_: str, value: str, namespace: str, holder: str) -> dict[str, Any]:
    """Of an attachment, or, for a VNI, of a VPC."""
    kind = "VPC" if type_ == "VNI" else "VPCAttachment"
    spec = {"type": type_, "value": value, "holder": {"kind": kind, "namespace": namespace, "name": holder, "uid": "x"}}
    return {"apiVersion": API, "kind": "NetworkClaim", "metadata": {"name": name}, "spec": spec}


def pool(first: int = 10001, last: int = 10100, *more: dict[str, Any]) -> dict[str, Any]:
    ranges = [{"first": first, "last": last}, *more]
    return {"apiVersion": API, "kind": "NetworkPool", "metadata": {"name": "default"}, "spec": {"vniRanges": ranges}}
