"""Which Images an object names, anywhere in it. Pure.

By the names of fields and not by a list of them: a field that a later release adds counts without anybody thinking of
it here. All that ends in `imageRef` names an Image, all that ends in `imageDigest` the digest of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from provisioner.api.nodes.contract import BOOT_INTENT_ANNOTATION, BOOT_REPORT_ANNOTATION, NODE_FACTS_ANNOTATION
from provisioner.api.nodes.maintenance import FINAL_PHASES, Maintenance

KEEP_LABEL: Final = "provisioner.dev/keep"
"""On an Image, with any value but `false`: it stays, as a person says so."""

_ENDINGS: Final = ("imageRef", "ImageRef", "imageDigest", "ImageDigest")
_ANNOTATIONS: Final = (NODE_FACTS_ANNOTATION, BOOT_INTENT_ANNOTATION, BOOT_REPORT_ANNOTATION)
_MAX_ANNOTATION: Final = 64 * 1024
_RECORDS: Final = ("status.history",)
"""Of a NodePool: rollouts that are over. To go back to the image before, `status.rollout.previousImageRef` counts."""


def images_named(kind: str, body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name or digest of each Image that an object of this project's `kind` names, and the field that does.

    A Maintenance that has ended is a record, and names none.
    """
    if kind == Maintenance.KIND.kind and (body.get("status") or {}).get("phase") in FINAL_PHASES:
        return
    for part in ("spec", "status"):
        yield from _walk(body.get(part), part)


def images_of_node(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The same of a Node: what its agent says that it runs, and what it was told to stage or boot."""
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    for name in _ANNOTATIONS:
        text = annotations.get(name)
        if not isinstance(text, str) or len(text) > _MAX_ANNOTATION:
            continue
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            continue
        yield from ((value, f"annotation {name}") for value, _ in _walk(told, name))


def _walk(value: Any, path: str) -> Iterator[tuple[str, str]]:
    waiting: list[tuple[Any, str]] = [(value, path)]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, Mapping):
            for key, item in value.items():
                below = f"{path}.{key}"
                if isinstance(item, str):
                    if str(key).endswith(_ENDINGS):
                        yield item, below
                elif below not in _RECORDS:
                    waiting.append((item, below))
        elif isinstance(value, list | tuple):
            waiting += [(item, path) for item in value]
