"""Traces as OTLP over HTTP, by OpenTelemetry's own SDK: the extra `tracing`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from provisioner import __version__
from provisioner.api.machinery.errors import NeedsHuman, Refused
from provisioner.cluster.tracing.boot_trace import BootTrace, Span

Send = Callable[[Sequence[BootTrace]], bool]
"""Whether the collector took them."""

ATTEMPT_SECONDS = 10.0
"""For a request and its repetitions."""


def otlp_sender(endpoint: str, *, service: str, instance: str) -> Send:
    """Sends to `endpoint`, such as http://collector:4318 (/v1/traces is added to a URL without a path). Headers,
    certificates and compression are those of OTEL_EXPORTER_OTLP_*, so that no secret stands in a command line.

    Raises: NeedsHuman without the extra, Refused if the endpoint is no URL.
    """
    url = traces_url(endpoint)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError as error:
        raise NeedsHuman(
            f"--trace-endpoint is given, and OpenTelemetry is not installed: {error}",
            hint="install the wheel with its extra: pip install 'FILE.whl[tracing]'; or leave --trace-endpoint out",
        ) from error
    # It logs each attempt in its own way, past the service's; what came of it is logged by who sends.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    logging.getLogger("opentelemetry").propagate = False
    exporter = OTLPSpanExporter(endpoint=url, timeout=ATTEMPT_SECONDS)
    resource = Resource(
        {
            "service.namespace": "provisioner",
            "service.name": service,
            "service.version": __version__,
            "service.instance.id": instance,
        }
    )

    def send(traces: Sequence[BootTrace]) -> bool:
        spans = [_readable(trace.trace_id, span, resource) for trace in traces for span in trace.spans]
        return exporter.export(spans) is SpanExportResult.SUCCESS

    return send


def traces_url(endpoint: str) -> str:
    """Raises: Refused."""
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise Refused(f"--trace-endpoint {endpoint!r} is no URL", hint="give one such as http://collector:4318")
    if parts.username is not None:
        raise Refused(
            "--trace-endpoint has a user in it, which everybody sees who lists processes",
            hint="set OTEL_EXPORTER_OTLP_HEADERS=Authorization=… in the environment",
        )
    return urlunsplit(parts._replace(path="/v1/traces")) if parts.path in ("", "/") else endpoint


def _readable(trace_id: int, span: Span, resource: Any) -> Any:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    def context(span_id: int) -> SpanContext:
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        name=span.name,
        context=context(span.span_id),
        parent=context(span.parent_id) if span.parent_id is not None else None,
        resource=resource,
        attributes=span.attributes,
        kind=SpanKind.INTERNAL,
        instrumentation_scope=InstrumentationScope("provisioner.boot", __version__),
        status=Status(StatusCode.OK) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=_nanoseconds(span.began),
        end_time=_nanoseconds(span.ended),
    )


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000) * 1000
