"""A FirmwareProfile and what `provisioner.attestation` compares: the same, in two forms. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.servers.firmware_profile import (
    LEARNED_PREFIX,
    FirmwareEvent,
    FirmwareProfile,
    FirmwareProfileSpec,
)
from provisioner.attestation.event_log.compare import ExpectedEvent
from provisioner.attestation.measurements import PROGRAMS_PCR, FirmwareMeasurements

MAX_LEARNED: Final = 64
"""Profiles that wait for approval; more are not written: whoever has a TPM can show any firmware."""
MAX_LEARNED_OF_STRANGERS: Final = 32
"""So many may wait when another is learned of a machine whose key nobody knows, which may be software that invents what
it likes: what it fills leaves room for machines whose key is known."""
PROFILE_READ_SECONDS: Final = 15.0
"""For how long a boot host relies on the profiles that it has read: an approval counts everywhere after it."""
_WHAT: Final = 160


def approved(profiles: Iterable[FirmwareProfile]) -> tuple[FirmwareMeasurements, ...]:
    """What machines may have measured, in the order of the profiles' names. A profile with the name of another content
    is none of them: whoever approved it may have compared that content."""
    return tuple(
        measurements_of(each)
        for each in sorted(profiles, key=lambda each: each.name)
        if each.spec.approved and find_false_name(each) is None
    )


def find_false_name(profile: FirmwareProfile) -> str | None:
    """Why the name of a profile is not that of its content; None if it is, or if a person has chosen it."""
    if not profile.name.startswith(LEARNED_PREFIX):
        return None
    expected = _learned_name(_measurements(profile, profile.spec.events))
    if profile.name == expected:
        return None
    return f"FirmwareProfile {profile.name} has the content of {expected}: somebody has changed or invented it"


def to_learn_again(name: str) -> str:
    """What to do about a profile with a false name where a machine waits for it."""
    return (
        f"kubectl delete firmwareprofile {name}: the boot host writes it again, as measured, when the machine next "
        f"asks to join (to keep your changes, copy it first under a name that does not begin with {LEARNED_PREFIX})"
    )


def to_prove_again(name: str, server: str) -> str:
    """The same for a server that has proved its firmware before: nothing more is learned of it."""
    return (
        "approve a copy under a name of your own, or delete it and create it again with its former content, or delete "
        f"it and have the server's proof forgotten: kubectl delete firmwareprofile {name}; kubectl provision "
        f"attestation forget {server}"
    )


def find_ignored(profiles: Iterable[FirmwareProfile]) -> FirmwareProfile | None:
    """The first by name of those that were approved and count for nothing, as they have a false name."""
    approved_ones = (each for each in sorted(profiles, key=lambda each: each.name) if each.spec.approved)
    return next((each for each in approved_ones if find_false_name(each) is not None), None)


def measurements_of(profile: FirmwareProfile) -> FirmwareMeasurements:
    """The profile as evidence is compared with it: events of registers that are not judged do not count."""
    counted = {*profile.spec.judged, PROGRAMS_PCR}
    return _measurements(profile, (each for each in profile.spec.events if each.pcr in counted))


def _measurements(profile: FirmwareProfile, events: Iterable[FirmwareEvent]) -> FirmwareMeasurements:
    return FirmwareMeasurements(
        name=profile.name,
        events=tuple(ExpectedEvent(each.pcr, bytes.fromhex(each.digest), each.what) for each in events),
        judged=frozenset(profile.spec.judged),
        startup_locality=profile.spec.startup_locality,
    )


def learned_profile(learned: FirmwareMeasurements) -> FirmwareProfile:
    """The profile to approve, named after its content."""
    return FirmwareProfile(
        metadata=ObjectMeta(name=_learned_name(learned)),
        spec=FirmwareProfileSpec(
            judged=tuple(sorted(learned.judged)),
            startup_locality=learned.startup_locality,
            events=tuple(
                FirmwareEvent(pcr=each.pcr, digest=each.digest.hex(), what=_printable(each.what))
                for each in learned.events
            ),
        ),
    )


def _learned_name(content: FirmwareMeasurements) -> str:
    return LEARNED_PREFIX + content.digest.removeprefix("sha256:")[:20]


def _printable(what: str) -> str:
    """A log's words are whatever the machine says."""
    return "".join(c if " " <= c <= "~" else "?" for c in what)[:_WHAT].strip() or "?"
