"""A Redfish service whose one system has the quirks that a test gives it; without TLS, and with one session."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from werkzeug import Request, Response

from lab.bmc.resources import error
from provisioner.api.machinery.values import Secret
from provisioner.power.bmc.power_controller import BmcAccess
from tests.http_peer import HttpPeer

ROOT: Final = "/redfish/v1"
SYSTEM: Final = f"{ROOT}/Systems/1"
SETTINGS: Final = f"{SYSTEM}/SD"
SESSIONS: Final = f"{ROOT}/SessionService/Sessions"
Quirk = Callable[[Request, dict[str, Any]], Response | None]
"""Given a request and its body, which it may change; what it answers, None: as others do."""


def boot(**changes: Any) -> dict[str, Any]:
    """The object Boot of most BMCs, without what is None."""
    usual = {
        "BootSourceOverrideEnabled": "Disabled",
        "BootSourceOverrideTarget": "None",
        "BootSourceOverrideMode": "UEFI",
        "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd", "UefiHttp"],
    }
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


class FakeQuirkyBmc:
    """`documents` by their path. `settings`: those of the system, at `…/SD`."""

    def __init__(
        self, peer: HttpPeer, quirk: Quirk = lambda _request, _body: None, *, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.address = peer.url
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.posted: list[str] = []
        self._quirk = quirk
        system = {
            "@odata.id": SYSTEM,
            "Id": "1",
            "Name": "1",
            "PowerState": "Off",
            "Boot": boot(),
            "Actions": {"#ComputerSystem.Reset": {"target": f"{SYSTEM}/Actions/ComputerSystem.Reset"}},
        }
        self.documents: dict[str, dict[str, Any]] = {
            ROOT: {
                "@odata.id": ROOT,
                "Id": "Root",
                "Name": "Root",
                "RedfishVersion": "1.11.0",
                "Systems": {"@odata.id": f"{ROOT}/Systems"},
                "Links": {"Sessions": {"@odata.id": SESSIONS}},
            },
            f"{ROOT}/Systems": {"Name": "Systems", "Members": [{"@odata.id": SYSTEM}]},
            SYSTEM: system,
        }
        if settings is not None:
            system["@Redfish.Settings"] = {"SettingsObject": {"@odata.id": SETTINGS}}
            self.documents[SETTINGS] = {"@odata.id": SETTINGS, "Id": "SD", "Name": "SD", **settings}
        peer.expect_request(re.compile("")).respond_with_handler(self._answer)

    @property
    def boot(self) -> dict[str, Any]:
        found: dict[str, Any] = self.documents[SYSTEM]["Boot"]
        return found

    @property
    def access(self) -> BmcAccess:
        return BmcAccess(
            address=self.address,
            username="admin",
            password=Secret("secret"),
            credentials_name="provisioner-bmcs/r01-bmc",
            allow_plain_http=True,
        )

    def _answer(self, request: Request) -> Response:
        body: dict[str, Any] = json.loads(request.get_data() or b"{}")
        given = self._quirk(request, body)
        if given is not None:
            return given
        path = request.path.rstrip("/")
        if request.method == "GET":
            found = self.documents.get(path)
            return answered(found) if found is not None else refused(404, "ResourceMissingAtURI")
        if request.method == "PATCH":
            self.patched.append((path, body))
            self.documents[path].setdefault("Boot", {}).update(body["Boot"])
        elif path == SESSIONS:
            return Response("{}", 201, {"X-Auth-Token": "t", "Location": f"{SESSIONS}/1"})
        elif request.method == "POST":
            self.posted.append(path)
        return Response(status=204)


def answered(document: Mapping[str, Any], status: int = 200, **headers: str) -> Response:
    return Response(json.dumps(document), status, headers, content_type="application/json")


def refused(status: int, message_id: str, message: str = "no") -> Response:
    return answered(error(message_id, message), status)
