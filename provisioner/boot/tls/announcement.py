"""The document that adds authorities to those which images have; signed by the image key, read by the agent
(`provisioner.node.image.authorities`). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from provisioner.api.machinery.errors import Refused
from provisioner.boot.tls.issue import is_authority, to_pem

NAME: Final = "join-authorities"
"""In the image store; its signature has `.sig` behind it."""
MOST_AUTHORITIES: Final = 4
MOST_DAYS: Final = 397


def render_announcement(authorities: Sequence[x509.Certificate], days: int, now: datetime) -> str:
    """Its text. Raises: Refused for too many, for one that is none, and for a time that is too long."""
    if not 1 <= len(authorities) <= MOST_AUTHORITIES:
        raise Refused(
            f"{len(authorities)} authorities would be announced, expected 1 to {MOST_AUTHORITIES}",
            hint="name the new one alone: images have the old one",
        )
    if not 1 <= days <= MOST_DAYS:
        raise Refused(f"an announcement for {days} days, expected 1 to {MOST_DAYS}", hint="give another --days")
    for each in authorities:
        if not is_authority(each):
            raise Refused(
                f"certificate {each.subject.rfc4514_string()} is no authority's", hint="name the authority's file"
            )
        if each.not_valid_after_utc <= now:
            raise Refused(
                f"authority {each.subject.rfc4514_string()} ended at {each.not_valid_after_utc:%Y-%m-%d}",
                hint="name the one that took its place",
            )
    until = (now + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"provisioner-join-authorities 1\nuntil {until}\n{to_pem(*authorities)}"
