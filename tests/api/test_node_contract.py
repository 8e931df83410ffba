"""What is read of a Node, whatever somebody has written there."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api.nodes.contract import MAX_BOOT_ID, read_boot_id

BOOT_ID = "6f1c5d0e-8c55-4b57-9f8f-0d8a5a3f1e11"


@pytest.mark.parametrize(
    ("node", "boot_id"),
    [
        ({"status": {"nodeInfo": {"bootID": BOOT_ID}}}, BOOT_ID),
        ({"status": {"nodeInfo": {"bootID": BOOT_ID.upper()}}}, BOOT_ID),
        ({"status": {"nodeInfo": {"bootID": "x" * MAX_BOOT_ID}}}, "x" * MAX_BOOT_ID),
        ({"status": {"nodeInfo": {"bootID": "x" * (MAX_BOOT_ID + 1)}}}, None),
        ({"status": {"nodeInfo": {"bootID": ""}}}, None),
        ({"status": {"nodeInfo": {}}}, None),
        ({"status": {}}, None),
        ({"status": {"nodeInfo": None}}, None),
        ({}, None),
    ],
)
def test_a_boot_id_that_no_kernel_has_counts_as_none(node: dict[str, Any], boot_id: str | None) -> None:
    assert read_boot_id(node) == boot_id
