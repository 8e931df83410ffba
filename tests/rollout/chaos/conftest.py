"""Quiet, as in the chaos of a single server."""

from __future__ import annotations

from tests.maintenance.chaos.conftest import quiet_logs

__all__ = ["quiet_logs"]
