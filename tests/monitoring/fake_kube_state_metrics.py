"""What kube-state-metrics makes of a custom resource by its configuration: of its language the part that ours uses, as
its documentation tells it (docs/metrics/extend/customresourcestate-metrics.md of its repository)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provisioner.api.machinery.meta import parse_time


def expose(configuration: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    lines = []
    for resource in configuration["spec"]["resources"]:
        common = {label: _at(body, path) for label, path in resource["labelsFromPath"].items()}
        for metric in resource["metrics"]:
            (kind,) = (key for key in metric["each"] if key != "type")
            assert metric["each"]["type"].lower() == kind
            each = metric["each"][kind]
            for found in _elements(body, each.get("path", ())):
                labels = common | {label: _at(found, path) for label, path in each.get("labelsFromPath", {}).items()}
                value = 1.0 if kind == "info" else _number(_at(found, each.get("valueFrom", ())))
                words = ",".join(f'{label}="{text}"' for label, text in sorted(labels.items()) if text is not None)
                lines.append(f"{resource['metricNamePrefix']}_{metric['name']}{{{words}}} {value}")
    return "\n".join(lines) + "\n"


def _elements(body: Any, path: Sequence[str]) -> Iterator[Any]:
    found = _at(body, path)
    if isinstance(found, list):
        yield from found
    elif found is not None:
        yield found


def _at(body: Any, path: Sequence[str]) -> Any:
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    return body


def _number(value: Any) -> float:
    return parse_time(value).timestamp() if isinstance(value, str) else float(value)
