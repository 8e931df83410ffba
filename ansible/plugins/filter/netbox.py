"""From what NetBox exports to a packing list. Pure."""

from __future__ import annotations

DOCUMENTATION = r"""
name: netbox_packing_list
short_description: Turn an export of NetBox into a packing list
version_added: 0.2.0
description:
  - Takes devices and interfaces as NetBox's REST API gives them (pages or lists), or the answer of its GraphQL API
    with C(device_list), and gives what M(provisioner.provisioner.packing_list) takes as C(content).
  - All that is wrong is told at once, device by device, with what to do about it in NetBox.
  - Devices that NetBox calls neither active, planned, staged nor inventory are left out.
author: The authors of provisioner
positional: _input
options:
  _input:
    description:
      - A mapping with C(devices) and C(interfaces), or a GraphQL answer.
    type: dict
    required: true
  rack:
    description:
      - Rack of all servers. If absent, each is in the one that NetBox says, in lower case, with dashes for what is no
        letter or digit.
    type: str
  pool:
    description:
      - NodePool of servers whose custom field O(pool_field) is empty.
    type: str
  pool_field:
    description:
      - Custom field with the NodePool.
    type: str
    default: node_pool
  roles:
    description:
      - Only devices with one of these roles, by slug.
    type: list
    elements: str
    default: []
  boot_interface:
    description:
      - Name of the interface that boots. If absent, it is the one that has O(boot_tag), else the only one that is not
        for management and has a MAC address.
    type: str
  boot_tag:
    description:
      - Tag of the interface that boots, by slug.
    type: str
    default: pxe
  bmc_scheme:
    description:
      - How BMCs are spoken to; their address is the device's out-of-band address.
    type: str
    choices: [https, ipmi]
    default: https
"""

EXAMPLES = r"""
- name: Register what NetBox knows
  provisioner.provisioner.packing_list:
    content: "{{ {'devices': devices.json, 'interfaces': interfaces.json}
                 | provisioner.provisioner.netbox_packing_list(roles=['gpu-server'], pool='gpu') }}"
"""

RETURN = r"""
_value:
  description: A packing list with C(servers).
  type: dict
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

STATUSES = ("active", "planned", "staged", "inventory")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")

Device = Mapping[str, Any]


class _Wrong(Exception):
    """Observed, expected and remedy."""


def netbox_packing_list(
    export: Mapping[str, Any],
    rack: str | None = None,
    pool: str | None = None,
    pool_field: str = "node_pool",
    roles: Sequence[str] = (),
    boot_interface: str | None = None,
    boot_tag: str = "pxe",
    bmc_scheme: str = "https",
) -> dict[str, Any]:
    """Raises: AnsibleFilterError with all that is wrong."""
    if bmc_scheme not in ("https", "ipmi"):
        raise AnsibleFilterError(f"bmc_scheme is {bmc_scheme!r}, expected https or ipmi")
    servers, wrong = [], []
    for device, interfaces in _devices(export):
        if not _is_meant(device, roles):
            continue
        called = device.get("name") or f"device {device.get('id')}"
        try:
            server: dict[str, Any] = {"name": _name(device), "rackRef": rack or _rack(device)}
            boots = _boot_interface(interfaces, boot_interface, boot_tag)
            server["bootMACAddress"] = _mac(boots)
            others = [each for each in interfaces if each is not boots and not each.get("mgmt_only") and _raw_mac(each)]
            server |= _optional(device, interfaces, pool, pool_field, bmc_scheme)
            if others:
                server["interfaces"] = [{"name": str(each["name"]), "macAddress": _mac(each)} for each in others]
            servers.append(server)
        except _Wrong as error:
            wrong.append(f"  {called}: {error}")
    if wrong:
        count = "a device" if len(wrong) == 1 else f"{len(wrong)} devices"
        raise AnsibleFilterError("\n".join([f"NetBox's export cannot be registered, {count} of it:", *wrong]))
    if not servers:
        raise AnsibleFilterError(
            "NetBox's export has no device that is meant, expected at least one; correct the query, or roles"
        )
    return {"servers": servers}


def _devices(export: Mapping[str, Any]) -> Iterator[tuple[Device, list[Device]]]:
    """Each device with its interfaces, whichever API was asked."""
    found = export.get("data", export)
    if "device_list" in found:
        for device in found["device_list"]:
            yield device, list(device.get("interfaces") or ())
        return
    if "devices" not in found or "interfaces" not in found:
        raise AnsibleFilterError(
            f"NetBox's export has {', '.join(map(str, found)) or 'nothing'}, expected devices and interfaces, or "
            "data.device_list; give both lists as the REST API has them, or a GraphQL answer"
        )
    by_device: dict[Any, list[Device]] = {}
    for interface in _results(found["interfaces"], "interfaces"):
        owner = interface.get("device") or {}
        by_device.setdefault(owner.get("id") or owner.get("name"), []).append(interface)
    for device in _results(found["devices"], "devices"):
        yield device, by_device.get(device.get("id"), []) or by_device.get(device.get("name"), [])


def _results(given: Any, what: str) -> Sequence[Device]:
    """A page of the REST API, several of them, or a list. A page with others behind it is not all there is."""
    pages = given if isinstance(given, list) and given and "results" in given[0] else [given]
    if isinstance(pages[-1], Mapping):
        if pages[-1].get("next"):
            raise AnsibleFilterError(
                f"NetBox's export has a page of {what}, and {pages[-1]['next']} behind it, expected all; "
                "ask with limit=0, or give all pages as a list"
            )
        return [each for page in pages for each in page["results"]]
    return list(given)


def _is_meant(device: Device, roles: Sequence[str]) -> bool:
    status, role = device.get("status"), device.get("role") or device.get("device_role") or {}
    value = status.get("value") if isinstance(status, Mapping) else status
    return (not value or str(value).lower() in STATUSES) and (not roles or role.get("slug") in roles)


def _name(device: Device) -> str:
    name = str(device.get("name") or "").partition(".")[0].lower()
    if not _LABEL.fullmatch(name):
        raise _Wrong(
            f"its name is {device.get('name')!r}, expected letters, digits and dashes, as it is a host name; rename it"
        )
    return name


def _rack(device: Device) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", str((device.get("rack") or {}).get("name") or "").lower()).strip("-")
    if not name:
        raise _Wrong("it is in no rack, expected one; put it into its rack, or give rack to the filter")
    return name


def _raw_mac(interface: Device) -> str | None:
    """Of 4.2 and newer, where MAC addresses are objects of their own, and of older ones."""
    primary = interface.get("primary_mac_address") or {}
    return interface.get("mac_address") or primary.get("mac_address")


def _mac(interface: Device) -> str:
    raw = _raw_mac(interface)
    bare = re.sub(r"[:.-]", "", str(raw or "").lower())
    mac = ":".join(bare[i : i + 2] for i in range(0, len(bare), 2))
    if not _MAC.fullmatch(mac):
        raise _Wrong(f"interface {interface.get('name')} has MAC address {raw!r}, expected six bytes; correct it")
    return mac


def _boot_interface(interfaces: Sequence[Device], named: str | None, tag: str) -> Device:
    if named is not None:
        found = [each for each in interfaces if each.get("name") == named]
        expected = f"one with the name {named}"
    else:
        plain = [each for each in interfaces if not each.get("mgmt_only") and _raw_mac(each)]
        tagged = [each for each in interfaces if tag in (t.get("slug") for t in each.get("tags") or ())]
        found = tagged or plain
        expected = f"one with the tag {tag}, or only one with a MAC address that is not for management"
    if len(found) != 1:
        names = ", ".join(str(each.get("name")) for each in found) or "none"
        raise _Wrong(f"the interface that boots is not clear ({names}), expected {expected}; tag it, or name it")
    return found[0]


def _optional(
    device: Device, interfaces: Sequence[Device], pool: str | None, pool_field: str, scheme: str
) -> dict[str, Any]:
    """What a device may have or not."""
    found: dict[str, Any] = {}
    if device.get("position"):
        position = float(device["position"])
        found["position"] = f"u{int(position):02d}" if position.is_integer() else f"u{position:04.1f}"
    if device.get("serial"):
        found["serialNumber"] = str(device["serial"])
    chosen = (device.get("custom_fields") or {}).get(pool_field) or pool
    if chosen:
        found["nodePoolRef"] = str(chosen)
    if device.get("oob_ip"):
        address = str(device["oob_ip"]["address"]).partition("/")[0]
        found["bmc"] = {"address": f"{scheme}://{f'[{address}]' if ':' in address else address}"}
        if scheme == "ipmi":
            found["bmc"]["protocol"] = "IPMI"
        managing = [each for each in interfaces if each.get("mgmt_only") and _raw_mac(each)]
        if len(managing) == 1:
            found["bmc"]["macAddress"] = _mac(managing[0])
    return found


class FilterModule:
    """As Ansible finds it."""

    def filters(self) -> dict[str, Any]:
        return {"netbox_packing_list": netbox_packing_list}
