"""What a person is told where a machine's firmware gives no event log that can show a boot."""

from __future__ import annotations


def never_there(server: str, why: str) -> str:
    """Of a server that has proved its firmware by none before."""
    return (
        f"the firmware of server {server} {why}, so nothing says what it booted; a newer firmware may, or booting by "
        "UEFI with TPM 2.0 and its SHA-256 bank on; else a pool with attestation Optional, where it joins and proves "
        "nothing"
    )


def gone(server: str, why: str) -> str:
    """Of one that has."""
    return (
        f"the firmware of server {server} {why}, and was proved by one before: find out who changed it; if you did: "
        f"kubectl provision attestation forget {server}"
    )
