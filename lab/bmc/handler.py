"""The few verbs of Redfish that one emulated BMC understands: credentials, sessions, overrides, resets, faults."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import structlog

from lab.bmc import resources as bmc_resources
from lab.bmc.override import PropertyRefusedError
from lab.bmc.server_power import RESET_TYPES, PowerStateError
from provisioner.api.machinery.errors import Retryable
from provisioner.node.http.lingering_close import LingeringHandler

if TYPE_CHECKING:
    from lab.bmc.endpoint import BmcEndpoint

log = structlog.get_logger()

_MAX_BODY_BYTES: Final = 64 << 10
_MAX_SESSIONS: Final = 16


class HasEndpoint(Protocol):
    """The HTTP server that a request came in by."""

    endpoint: BmcEndpoint


class BmcHandler(LingeringHandler, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "provisioner-lab-bmc"
    sys_version = ""

    @property
    def endpoint(self) -> BmcEndpoint:
        return cast("HasEndpoint", self.server).endpoint

    def do_GET(self) -> None:
        if not self._admit():
            return
        path = self._resource_path()
        if path == bmc_resources.SESSIONS:
            self._answer(HTTPStatus.OK, bmc_resources.session_collection(list(self.endpoint.sessions.values())))
        elif (
            path.startswith(bmc_resources.SESSIONS + "/") and path.rpartition("/")[2] in self.endpoint.sessions.values()
        ):
            self._answer(
                HTTPStatus.OK, bmc_resources.session(path.rpartition("/")[2], self.endpoint.credentials.username)
            )
        elif (document := self._document(path)) is not None:
            self._answer(HTTPStatus.OK, document, ETag=bmc_resources.etag(document))
        else:
            self._not_found(path)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        path = self._resource_path()
        body = self._body()
        if body is None or not self._admit(public=path == bmc_resources.SESSIONS):
            return
        if path == bmc_resources.SESSIONS:
            self._open_session(body)
        elif path == bmc_resources.RESET_ACTION:
            self._reset(body.get("ResetType"))
        else:
            self._not_found(path)

    def do_PATCH(self) -> None:
        path = self._resource_path()
        body = self._body()
        if body is None or not self._admit():
            return
        if path != bmc_resources.SYSTEM:
            self._not_found(path)
            return
        document = self._document(path)
        if document is None or not bmc_resources.matches(self.headers.get("If-Match"), document):
            self._refuse(
                HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed", "The ETag supplied did not match the current one."
            )
            return
        if unknown := sorted(set(body) - {"Boot"}):
            self._refuse(
                HTTPStatus.BAD_REQUEST,
                "PropertyNotWritable",
                f"The property {unknown[0]} is read only or unknown.",
                unknown[0],
            )
            return
        try:
            self.endpoint.power.patch_boot(body.get("Boot", {}))
        except PropertyRefusedError as refused:
            self._refuse(HTTPStatus.BAD_REQUEST, refused.message_id, str(refused), refused.property_path)
            return
        self._answer(HTTPStatus.NO_CONTENT)

    def do_DELETE(self) -> None:
        self._body()
        if not self._admit():
            return
        path = self._resource_path()
        wanted = path.removeprefix(bmc_resources.SESSIONS + "/")
        for token, identity in list(self.endpoint.sessions.items()):
            if identity == wanted:
                del self.endpoint.sessions[token]
                self._answer(HTTPStatus.NO_CONTENT)
                return
        self._not_found(path)

    def _admit(self, *, public: bool = False) -> bool:
        """Play the faults, then check the credentials; answers itself if it returns False."""
        faults = self.endpoint.faults
        if faults.delay_seconds:
            time.sleep(faults.delay_seconds)
        if faults.unavailable or (faults.resets_unavailable and self._resource_path() == bmc_resources.RESET_ACTION):
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "ServiceTemporarilyUnavailable",
                "The service is temporarily unavailable.",
                **{"Retry-After": "2"},
            )
            return False
        if public or self._resource_path() in bmc_resources.PUBLIC_PATHS or self._authenticated():
            return True
        self._refuse(
            HTTPStatus.UNAUTHORIZED,
            "NoValidSession",
            "There is no valid session established with the implementation.",
            **{"WWW-Authenticate": 'Basic realm="BMC"'},
        )
        return False

    def _authenticated(self) -> bool:
        token = self.headers.get("X-Auth-Token")
        if token is not None:
            if self.endpoint.faults.tokens_refused > 0:
                self.endpoint.faults.tokens_refused -= 1
                return False
            return token in self.endpoint.sessions
        scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            username, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return self.endpoint.credentials.fit(username, password)

    def _open_session(self, body: dict[str, Any]) -> None:
        if not self.endpoint.credentials.fit(body.get("UserName"), body.get("Password")):
            self._refuse(HTTPStatus.UNAUTHORIZED, "ResourceAtUriUnauthorized", "Invalid user name or password.")
            return
        if len(self.endpoint.sessions) >= _MAX_SESSIONS:
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "SessionLimitExceeded",
                "The session establishment failed: too many sessions.",
            )
            return
        token, identity = secrets.token_hex(16), secrets.token_hex(4)
        self.endpoint.sessions[token] = identity
        location = f"{bmc_resources.SESSIONS}/{identity}"
        document = bmc_resources.session(identity, self.endpoint.credentials.username)
        self._answer(HTTPStatus.CREATED, document, **{"X-Auth-Token": token, "Location": location})

    def _reset(self, reset_type: object) -> None:
        if reset_type not in RESET_TYPES:
            self._refuse(
                HTTPStatus.BAD_REQUEST,
                "ActionParameterNotSupported",
                f"The parameter ResetType with the value {reset_type!r} is not supported.",
                "ResetType",
            )
            return
        try:
            self.endpoint.power.reset(reset_type)
        except PowerStateError as error:
            self._refuse(HTTPStatus.CONFLICT, "ResourceInUse", str(error))
        except Retryable as error:
            log.warning("reset action failed", server=self.endpoint.spec.name, error=str(error))
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", str(error))
        else:
            self._answer(HTTPStatus.NO_CONTENT)

    def _document(self, path: str) -> dict[str, Any] | None:
        power = self.endpoint.power
        return bmc_resources.find_resource(path, self.endpoint.spec, power.power_state, power.override)

    def _resource_path(self) -> str:
        return self.path.partition("?")[0].rstrip("/")

    def _body(self) -> dict[str, Any] | None:
        """The JSON object of the request; None if it was none and that has been answered."""
        length = int(self.headers.get("Content-Length") or 0)
        if length == 0:
            return {}
        if length > _MAX_BODY_BYTES:
            self.close_connection = True
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "MalformedJSON", "The request body is too large.")
            return None
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "MalformedJSON", "The request body is not a JSON object.")
            return None
        return body

    def _not_found(self, path: str) -> None:
        self._refuse(HTTPStatus.NOT_FOUND, "ResourceMissingAtURI", f"The resource at the URI {path} was not found.")

    def _refuse(self, status: HTTPStatus, message_id: str, message: str, *related: str, **headers: str) -> None:
        self._answer(status, bmc_resources.error(message_id, message, *related), **headers)

    def _answer(self, status: HTTPStatus, document: dict[str, Any] | None = None, **headers: str) -> None:
        if self.command in self.endpoint.faults.answers_lost:
            self.endpoint.faults.answers_lost.remove(self.command)
            self.close_connection = True
            return
        content = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("OData-Version", "4.0")
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name, value)
        if content:
            self.send_header("Content-Type", "application/json")
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        log.debug(
            "BMC request was answered",
            server=self.endpoint.spec.name,
            request=self.requestline if hasattr(self, "requestline") else None,
        )
