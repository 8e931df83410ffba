"""What a person is told where a machine's firmware gives no event log."""

from __future__ import annotations

from provisioner.attestation.event_log.parse import LARGEST_LOG_BYTES


def never_there(server: str) -> str:
    """Of a server that has proved its firmware by none before."""
    return (
        f"the firmware of server {server} gives no event log, or one of more than {LARGEST_LOG_BYTES >> 10} KiB, so "
        "nothing says what it booted; a newer firmware may, or booting by UEFI with TPM 2.0 and its SHA-256 bank "
        "on; else a pool with attestation Optional, where it joins and proves nothing"
    )


def gone(server: str) -> str:
    """Of one that has."""
    return (
        f"the machine of server {server} gives no event log, and its firmware was proved by one before: find out who "
        f"changed it; if you did: kubectl provision attestation forget {server}"
    )
