"""What an event is, for a person."""

from __future__ import annotations

from provisioner.attestation.event_log.parse import Event


def describe(event: Event) -> str:
    """Such as `boot program PciRoot(0x0)/…/MAC(…)/IPv4(…)`; at most 160 printable characters, whatever the data are."""
    raise NotImplementedError
