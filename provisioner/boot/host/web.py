"""What the boot service answers over HTTP: reports of progress, scripts for machines that have no file, health."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from flask import Blueprint, Response, request
from prometheus_client import CollectorRegistry
from werkzeug.exceptions import BadRequest, RequestEntityTooLarge

from provisioner.api.machinery.errors import ProvisionerError, Refused
from provisioner.api.machinery.values import parse_mac
from provisioner.api.servers.boot_stage import BootStage
from provisioner.api.servers.discovery import Claims, read_claims
from provisioner.boot.metrics.progress import ProgressMeter
from provisioner.boot.observe.discover import Discoverer
from provisioner.boot.observe.progress import ProgressReport
from provisioner.boot.observe.recorder import ProgressRecorder
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.boot.script.choose import KeepWaiting
from provisioner.boot.script.render import render_script
from provisioner.boot.script.renderer import STARTING
from provisioner.cluster.health.checks import Check, HealthVerdict, answer
from provisioner.rules.rate import Rate, RequestLimit, Shares, known_by_address

REPORTED_STAGES: Final = ("Stage1", "Root", "System", "Token")
"""What a machine may say of itself; firmware and iPXE are seen in DHCP, the rest is known from the cluster."""

BY_DPU_PATH: Final = "/by-dpu/v1/progress"
"""Where nginx asks for what came to the listener for DPUs."""

MAX_BODY_BYTES: Final = 4096
MAX_MESSAGE_BYTES: Final = 2048
OF_A_CLIENT: Final = Rate(per_second=2.0, burst=30.0)
"""Reports, and, counted apart, scripts of machines that have no file."""
OF_ALL: Final = Shares(known=Rate(per_second=2000.0, burst=10_000.0), others=Rate(per_second=200.0, burst=1000.0))
"""A boot sends some six reports. What nobody has registered waits when it is too many."""
MAX_CLIENTS: Final = 16_384

TOO_OFTEN: Final = KeepWaiting(
    reason="TooOften",
    message="this address asked too often what to boot",
    remedy="none is needed, unless several machines share the address",
    retry_seconds=30,
)
TOO_MANY: Final = KeepWaiting(
    reason="TooMany",
    message="too many machines that nobody has registered ask at once what to boot",
    remedy="none is needed, unless it goes on: see in the boot host's access log who asks",
    retry_seconds=30,
)

_BOOT_ID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def boot_blueprint(
    *,
    index: ServerIndex,
    recorder: ProgressRecorder,
    discoverer: Discoverer,
    ready: Callable[[], bool],
    liveness: Sequence[Check] = (),
    readiness: Sequence[Check] = (),
    meter: ProgressMeter | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Blueprint:
    """The routes. `ready`: whether the inventory is known and all scripts are written.

    Of the checks this network, on which anybody may be, learns names and which failed; why, the metrics' address says.
    """
    meter = meter or ProgressMeter(CollectorRegistry())
    readiness = readiness or (Check("inventory", lambda: HealthVerdict(ready())),)
    blueprint = Blueprint("boot", __name__)
    # Who is registered does not wait for others.
    is_known = known_by_address(index.servers)
    limit, passed_on_limit = (
        RequestLimit(OF_A_CLIENT, OF_ALL, is_known=is_known, max_clients=MAX_CLIENTS)
        for _ in ("machines", "what DPUs pass on for their hosts, from the same addresses")
    )
    # Of its own: what a system reports must not keep the firmware at the same address from its script.
    unknown_limit = RequestLimit(OF_A_CLIENT, OF_ALL, is_known=is_known, max_clients=MAX_CLIENTS)
    too_often = {"client": render_script(TOO_OFTEN), "total": render_script(TOO_MANY)}

    @blueprint.post("/v1/progress")
    def progress() -> Response:
        return take_report(limit, by_dpu=False)

    @blueprint.post(BY_DPU_PATH)
    def progress_by_dpu() -> Response:
        """By TLS, which the DPU cannot read: whose report it is, is looked at here."""
        return take_report(passed_on_limit, by_dpu=True)

    def take_report(limit: RequestLimit, *, by_dpu: bool) -> Response:
        request.max_content_length = MAX_BODY_BYTES
        if limit.take(request.remote_addr or "", monotonic()):
            meter.reported("rate_limited")
            return _plain(429, "too many reports\n")
        try:
            report = read_report(_sent())
        except RequestEntityTooLarge:
            meter.reported("too_large")
            return _plain(413, f"a report has at most {MAX_BODY_BYTES} bytes\n")
        except (BadRequest, Refused) as error:
            meter.reported("malformed")
            return _plain(400, f"{error}\n")
        if by_dpu and not is_of_own_host(report):
            meter.reported("unknown_machine")
            return _plain(403, "the report is not of the server whose boot this DPU carries\n")
        # Known or not, the answer is the same: it tells nothing about the inventory.
        meter.reported("accepted" if recorder.observe(report) else "unknown_machine")
        return Response(status=204)

    def is_of_own_host(report: ProgressReport) -> bool:
        try:
            return index.is_carried_by(request.remote_addr or "", report.mac)
        except ProvisionerError:
            return False

    @blueprint.get("/v1/ipxe")
    def ipxe() -> Response:
        """iPXE runs on the firmware's lease; with one of its own, DHCP has seen it."""
        if limit.take(request.remote_addr or "", monotonic()):
            return _plain(429, "too many reports\n")
        try:
            recorder.observe(ProgressReport(mac=parse_mac(request.args.get("mac", "")[:32]), stage="IPXE"))
        except Refused as error:
            return _plain(400, f"{error}\n")
        return _plain(200, "seen\n")

    @blueprint.get("/v1/unknown")
    def unknown() -> Response:
        source = request.remote_addr
        if limited := unknown_limit.take(source or "", monotonic()):
            return _plain(200, too_often[limited.by])  # a script all the same: firmware would give up on an error
        sent = {name: request.args.get(name, "") for name in ("uuid", "serial", "manufacturer", "product", "buildarch")}
        sent["mac"] = request.args.get("mac", "")
        if not ready():
            return _script(STARTING)
        try:
            claims = read_claims(sent, source_address=source)
        except Refused as error:
            return _script(KeepWaiting(reason="NoMACAddress", message=str(error), remedy="boot from another interface"))
        return _script(wait_for_claims(claims, index, discoverer))

    @blueprint.get("/healthz")
    def healthz() -> Response:
        return _health("healthz", liveness, "alive")

    @blueprint.get("/readyz")
    def readyz() -> Response:
        return _health("readyz", readiness, "ready")

    return blueprint


class Recording(Protocol):
    """What takes note of unknown machines (Discoverer)."""

    def offer(self, claims: Claims) -> str: ...

    @property
    def trouble(self) -> str | None: ...


def wait_for_claims(claims: Claims, index: ServerIndex, discoverer: Recording) -> KeepWaiting:
    """What a machine without a script waits for."""
    known = index.booting_from(claims.mac)
    if known is not None:
        return KeepWaiting(
            server=known["metadata"]["name"],
            reason="NotRendered",
            message="this server's script is being written",
            remedy="none is needed",
            retry_seconds=2,
        )
    other = index.having(claims.mac)
    if other is not None:
        return KeepWaiting(
            server=other["metadata"]["name"],
            reason="OtherInterface",
            message=f"Server '{other['metadata']['name']}' boots from {other['spec']['bootMACAddress']}, "
            f"this is its interface {claims.mac}; the next interface is tried",
            remedy="declare the boot interface in the BMC, or change spec.bootMACAddress",
            retry_seconds=1,
        )
    try:
        name = discoverer.offer(claims)
    except Refused as refused:
        return KeepWaiting(reason="Unknown", message=refused.args[0], remedy=refused.hint, retry_seconds=60)
    message = (
        f"this machine ({claims.mac}) is not registered; it is recorded as Server '{name}' and waits to be accepted"
    )
    if discoverer.trouble is not None:
        message = f"this machine ({claims.mac}) is not registered and could not be recorded yet: {discoverer.trouble}"
    return KeepWaiting(reason="Unknown", message=message, remedy=f"kubectl provision accept {name}")


def read_report(sent: Mapping[str, Any]) -> ProgressReport:
    """A report from its fields mac, stage, bootID and (optional) message. Raises: Refused on anything else."""
    surplus = set(sent) - {"mac", "stage", "bootID", "message"}
    if surplus:
        raise Refused("the report has unknown fields", hint="send mac, stage, bootID and message")
    values = {name: sent.get(name) for name in ("mac", "stage", "bootID", "message")}
    if not all(isinstance(value, str) for name, value in values.items() if name != "message" or value is not None):
        raise Refused("a field of the report is missing or no string", hint="send mac, stage and bootID as strings")
    if values["stage"] not in REPORTED_STAGES:
        raise Refused("the report's stage is unknown", hint=f"send one of {', '.join(REPORTED_STAGES)}")
    boot_id = cast("str", values["bootID"]).strip().lower()
    if not _BOOT_ID.match(boot_id):
        raise Refused("the report's bootID is no UUID", hint="send /proc/sys/kernel/random/boot_id")
    message = values["message"]
    if message is not None and len(message.encode(errors="replace")) > MAX_MESSAGE_BYTES:
        raise Refused("the report's message is too long", hint=f"send at most {MAX_MESSAGE_BYTES} bytes")
    mac = parse_mac(cast("str", values["mac"])[:32])
    return ProgressReport(mac=mac, stage=cast("BootStage", values["stage"]), boot_id=boot_id, message=message)


def _sent() -> Mapping[str, Any]:
    if request.mimetype == "application/json":
        try:
            body = request.get_json()
        except RecursionError as error:  # Python's parser counts brackets so
            raise Refused("the report is nested too deeply", hint="send mac, stage and bootID") from error
        if not isinstance(body, dict):
            raise Refused("the report is no JSON object", hint="send mac, stage and bootID")
        return body
    if request.mimetype == "application/x-www-form-urlencoded":
        return request.form.to_dict()
    raise Refused("the report is neither JSON nor a form", hint="set Content-Type")


def _health(title: str, checks: Sequence[Check], word: str) -> Response:
    """`word` alone if all is well and nobody asks for more."""
    verbose = "verbose" in request.args
    status, body = answer(title, [without_words(check) for check in checks], verbose=verbose)
    return _plain(status, body if status != 200 or verbose else f"{word}\n")


def without_words(check: Check) -> Check:
    """The same, of which nothing is told but whether it is well."""
    return Check(check.name, lambda: HealthVerdict(check.look().is_well))


def _script(wait: KeepWaiting) -> Response:
    return _plain(200, render_script(wait))


def _plain(status: int, text: str) -> Response:
    return Response(text, status=status, mimetype="text/plain", headers={"Cache-Control": "no-store"})
