"""POST /v1/join over HTTP. TLS ends at nginx in front of us, and the boot service puts the client's address where the
peer's stands (provisioner.boot.host.peer): no header counts here."""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from flask import Blueprint, Response, jsonify, request
from werkzeug.exceptions import ClientDisconnected, HTTPException, RequestEntityTooLarge

from provisioner.api.machinery.errors import ProvisionerError, Retryable
from provisioner.api.machinery.errors import Refused as Malformed
from provisioner.join.admission.admit import Challenged, Denied, NotYet
from provisioner.join.admission.configuration import JoinConfiguration, SealedConfiguration
from provisioner.join.admission.request import MAX_REQUEST_BYTES, JoinRequest, parse_join_request
from provisioner.join.admission.service import Answer
from provisioner.rules.rate import Rate, RequestLimit, Shares

log = structlog.get_logger()

BY_DPU_PATH: Final = "/by-dpu/v1/join"
"""No listener of nginx leads here but the one for what DPUs pass on."""

OF_A_CLIENT: Final = Rate(per_second=1.0, burst=20.0)
"""An agent asks once a boot, and then a few times a minute while it has to wait."""
OF_ALL: Final = Shares(known=Rate(per_second=1000.0, burst=5000.0), others=Rate(per_second=50.0, burst=200.0))
"""Who asks from an address that is no server's gets nothing but a refusal, which costs questions to the API server."""


class Joins(Protocol):
    """What answers (JoinService)."""

    def join(self, request: JoinRequest, source_address: str, *, by_dpu: bool = False) -> Answer: ...


def join_blueprint(
    service: Joins,
    *,
    is_known: Callable[[str], bool],
    monotonic: Callable[[], float] = time.monotonic,
) -> Blueprint:
    """The Flask blueprint: /v1/join, and the same for what DPUs pass on, which nginx has on a port of its own.
    `is_known`: whether an address is a registered server's, which does not wait for others.

    Answers carry tokens: they are never cached, and never logged.
    """
    blueprint = Blueprint("join", __name__)
    own_limit = RequestLimit(OF_A_CLIENT, OF_ALL, is_known=is_known)
    # Of its own: what a host asks must not keep its DPU, which has the same address here, from its join.
    passed_on_limit = RequestLimit(OF_A_CLIENT, OF_ALL, is_known=is_known)

    @blueprint.post("/v1/join")
    def join() -> Response:
        return answer(own_limit, by_dpu=False)

    @blueprint.post(BY_DPU_PATH)
    def join_by_dpu() -> Response:
        return answer(passed_on_limit, by_dpu=True)

    def answer(limit: RequestLimit, *, by_dpu: bool) -> Response:
        source = _source_address()
        if source is None:
            log.error("join request came without a source address", peer=request.environ.get("REMOTE_ADDR"))
            return _reply(400, "NoSourceAddress", "the proxy in front of the join service sent no usable address")
        if limited := limit.take(source, monotonic()):
            whose = f"{source} asks too often" if limited.by == "client" else "too many ask at once"
            return _reply(429, "TooManyRequests", whose, retry_after_seconds=limited.wait_seconds)
        if request.mimetype != "application/json":
            return _reply(415, "Malformed", "join request is not application/json")
        request.max_content_length = MAX_REQUEST_BYTES
        try:
            parsed = parse_join_request(request.get_data(cache=False))
        except RequestEntityTooLarge:
            return _reply(413, "TooLarge", f"join request is longer than {MAX_REQUEST_BYTES} bytes")
        except (ClientDisconnected, HTTPException):
            return _reply(400, "Malformed", "join request was cut")
        except Malformed as error:
            return _reply(400, "Malformed", str(error))
        return _answer(service, parsed, source, by_dpu=by_dpu)

    return blueprint


def _source_address() -> str | None:
    """Of who asks; None for a peer without an address."""
    try:
        address = ipaddress.ip_address(request.environ.get("REMOTE_ADDR") or "")
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _answer(service: Joins, parsed: JoinRequest, source: str, *, by_dpu: bool) -> Response:
    try:
        answer = service.join(parsed, source, by_dpu=by_dpu)
    except Retryable as error:
        log.warning("join put off", source=source, mac=parsed.mac_address, error=str(error))
        return _reply(503, "Unavailable", "the cluster does not answer now", retry_after_seconds=error.after_seconds)
    except ProvisionerError as error:
        log.error("join failed", source=source, mac=parsed.mac_address, error=str(error))
        return _reply(503, "Unavailable", "the join service has a fault; see its log", retry_after_seconds=15.0)
    except Exception:
        # Also what nobody thought of must leave the machine with a reason to try again.
        log.exception("join failed", source=source, mac=parsed.mac_address)
        return _reply(503, "Unavailable", "the join service has a fault; see its log", retry_after_seconds=15.0)
    if isinstance(answer, JoinConfiguration | SealedConfiguration):
        return _uncached(jsonify(answer.to_wire()), 200)
    if isinstance(answer, Challenged):
        challenged = jsonify(reason="Challenge", message="prove who you are", challenge=dict(answer.challenge))
        # RFC 9110, section 11.6.1: a 401 names a scheme. This one's parameters are in the body.
        challenged.headers["WWW-Authenticate"] = "Attestation"
        return _uncached(challenged, 401)
    if isinstance(answer, NotYet):
        return _reply(425, answer.reason, answer.message, retry_after_seconds=answer.retry_after_seconds)
    if isinstance(answer, Denied):
        return _reply(403, answer.reason, answer.message)
    raise TypeError(f"join service answered {type(answer).__name__}")


def _reply(status: int, reason: str, message: str, *, retry_after_seconds: float | None = None) -> Response:
    body: dict[str, object] = {"reason": reason, "message": message}
    if retry_after_seconds is not None:
        body["retryAfterSeconds"] = max(1, math.ceil(retry_after_seconds))
    response = _uncached(jsonify(body), status)
    if retry_after_seconds is not None:
        response.headers["Retry-After"] = str(body["retryAfterSeconds"])
    return response


def _uncached(response: Response, status: int) -> Response:
    response.status_code = status
    response.headers["Cache-Control"] = "no-store"
    return response
