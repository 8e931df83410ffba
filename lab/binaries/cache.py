"""Which programs the lab keeps in its cache, one directory a content, and of which version."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.golang import entry
from provisioner.image.golang.entry import Report

VERSION: Final = "v1.36.3"
"""Kubernetes version that the lab runs."""

NAMES: Final = ("kube-apiserver", "kube-controller-manager", "kubelet", "kubectl", "kube-scheduler")
OPTIONAL: Final = frozenset({"kube-scheduler"})

__all__ = ["NAMES", "VERSION", "Report", "architecture", "fill", "missing_in"]


def architecture() -> str:
    """This machine's, in Go's words. Raises: NeedsHuman on one for which Kubernetes is not released."""
    known = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = platform.machine()
    if machine not in known:
        raise NeedsHuman(f"no Kubernetes for {machine}", hint="run the lab on x86_64 or aarch64")
    return known[machine]


def missing_in(directory: Path, names: Sequence[str] = NAMES) -> list[str]:
    """Those of `names` that `directory` lacks; the optional ones do not count."""
    return entry.missing_in(directory, _needed(names))


def fill(directory: Path, report: Report, names: Sequence[str] = NAMES) -> AbstractContextManager[Path | None]:
    """As `golang.entry.fill`, for `names`, of which the optional ones may be absent."""
    return entry.fill(directory, report, _needed(names))


def _needed(names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in OPTIONAL]
