"""The Redfish documents of one emulated BMC. Pure: a path in, a document out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from lab.bmc.override import BootOverride, allowed_targets
from lab.bmc.server_power import RESET_TYPES
from lab.machine.machine import MachineSpec

ROOT: Final = "/redfish/v1"
SYSTEM: Final = f"{ROOT}/Systems/1"
RESET_ACTION: Final = f"{SYSTEM}/Actions/ComputerSystem.Reset"
SESSION_SERVICE: Final = f"{ROOT}/SessionService"
SESSIONS: Final = f"{SESSION_SERVICE}/Sessions"
_MANAGER: Final = f"{ROOT}/Managers/1"
_CHASSIS: Final = f"{ROOT}/Chassis/1"
_NIC: Final = f"{SYSTEM}/EthernetInterfaces/NIC1"

PUBLIC_PATHS: Final = frozenset({"/redfish", ROOT})
"""Readable without credentials, as DSP0266 wants it."""


def find_resource(path: str, spec: MachineSpec, power_state: str, override: BootOverride) -> dict[str, Any] | None:
    """The document at a path (without a trailing slash), or None. Sessions are not among them."""
    documents = {
        ROOT: _root(spec),
        f"{ROOT}/Systems": _collection(f"{ROOT}/Systems", "ComputerSystemCollection", SYSTEM),
        SYSTEM: _system(spec, power_state, override),
        f"{SYSTEM}/EthernetInterfaces": _collection(
            f"{SYSTEM}/EthernetInterfaces", "EthernetInterfaceCollection", _NIC
        ),
        _NIC: _resource(
            _NIC,
            "EthernetInterface.v1_9_0.EthernetInterface",
            "NIC1",
            MACAddress=spec.mac,
            PermanentMACAddress=spec.mac,
        ),
        f"{ROOT}/Managers": _collection(f"{ROOT}/Managers", "ManagerCollection", _MANAGER),
        _MANAGER: _resource(
            _MANAGER, "Manager.v1_14_0.Manager", "1", ManagerType="BMC", FirmwareVersion="lab", Status=_ENABLED
        ),
        f"{ROOT}/Chassis": _collection(f"{ROOT}/Chassis", "ChassisCollection", _CHASSIS),
        _CHASSIS: _resource(
            _CHASSIS,
            "Chassis.v1_21_0.Chassis",
            "1",
            ChassisType="RackMount",
            PowerState=power_state,
            SerialNumber=spec.serial,
        ),
        SESSION_SERVICE: _resource(
            SESSION_SERVICE,
            "SessionService.v1_1_8.SessionService",
            "SessionService",
            ServiceEnabled=True,
            Sessions={"@odata.id": SESSIONS},
        ),
    }
    if path == "/redfish":
        return {"v1": f"{ROOT}/"}
    return documents.get(path)


def etag(document: Mapping[str, Any]) -> str:
    """Strong entity tag of a document."""
    return '"' + hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16] + '"'


def matches(if_match: str | None, document: Mapping[str, Any]) -> bool:
    """Whether a request with this If-Match may change the document; weak tags are accepted, as many BMCs do."""
    if if_match is None:
        return True
    tags = [tag.strip().removeprefix("W/") for tag in if_match.split(",")]
    return "*" in tags or etag(document) in tags


def error(message_id: str, message: str, *related: str) -> dict[str, Any]:
    """An error response. Source: DSP0266, "Error responses"."""
    information = {
        "@odata.type": "#Message.v1_1_2.Message",
        "MessageId": f"Base.1.13.{message_id}",
        "Message": message,
        "Severity": "Critical",
        "MessageSeverity": "Critical",
        "Resolution": "Correct the request and send it again.",
    }
    if related:
        information["RelatedProperties"] = [f"#/{path}" for path in related]  # type: ignore[assignment]
    return {
        "error": {
            "code": f"Base.1.13.{message_id}",
            "message": message,
            "@Message.ExtendedInfo": [information],
        }
    }


def session(identity: str, username: str) -> dict[str, Any]:
    return _resource(f"{SESSIONS}/{identity}", "Session.v1_6_0.Session", identity, UserName=username)


def session_collection(identities: list[str]) -> dict[str, Any]:
    return _collection(SESSIONS, "SessionCollection", *(f"{SESSIONS}/{identity}" for identity in identities))


_ENABLED: Final = {"State": "Enabled", "Health": "OK"}


def _root(spec: MachineSpec) -> dict[str, Any]:
    return _resource(
        ROOT,
        "ServiceRoot.v1_15_0.ServiceRoot",
        "RootService",
        RedfishVersion="1.17.0",
        UUID=spec.uuid,
        Product="Provisioner lab BMC",
        Systems={"@odata.id": f"{ROOT}/Systems"},
        Chassis={"@odata.id": f"{ROOT}/Chassis"},
        Managers={"@odata.id": f"{ROOT}/Managers"},
        SessionService={"@odata.id": SESSION_SERVICE},
        Links={"Sessions": {"@odata.id": SESSIONS}},
    )


def _system(spec: MachineSpec, power_state: str, override: BootOverride) -> dict[str, Any]:
    boot: dict[str, Any] = {
        "BootSourceOverrideEnabled": override.enabled,
        "BootSourceOverrideTarget": override.target,
        "BootSourceOverrideTarget@Redfish.AllowableValues": list(allowed_targets(spec.firmware)),
        "BootSourceOverrideMode": "UEFI" if spec.firmware == "UEFI" else "Legacy",
    }
    if spec.firmware == "UEFI":
        boot["HttpBootUri"] = override.http_boot_uri
    return _resource(
        SYSTEM,
        "ComputerSystem.v1_20_0.ComputerSystem",
        "1",
        HostName=spec.name,
        SystemType="Physical",
        Manufacturer=spec.manufacturer,
        Model=spec.product,
        SerialNumber=spec.serial,
        UUID=spec.uuid,
        PowerState=power_state,
        Status=_ENABLED,
        Boot=boot,
        ProcessorSummary={"Count": spec.cpus},
        MemorySummary={"TotalSystemMemoryGiB": spec.memory_mib / 1024},
        EthernetInterfaces={"@odata.id": f"{SYSTEM}/EthernetInterfaces"},
        Links={"Chassis": [{"@odata.id": _CHASSIS}], "ManagedBy": [{"@odata.id": _MANAGER}]},
        Actions={
            "#ComputerSystem.Reset": {
                "target": RESET_ACTION,
                "ResetType@Redfish.AllowableValues": list(RESET_TYPES),
            }
        },
    )


def _resource(path: str, type_: str, identity: str, **fields: Any) -> dict[str, Any]:
    return {"@odata.id": path, "@odata.type": f"#{type_}", "Id": identity, "Name": identity, **fields}


def _collection(path: str, type_: str, *members: str) -> dict[str, Any]:
    return {
        "@odata.id": path,
        "@odata.type": f"#{type_}.{type_}",
        "Name": type_,
        "Members": [{"@odata.id": member} for member in members],
        "Members@odata.count": len(members),
    }
