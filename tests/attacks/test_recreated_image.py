"""An Image is deleted and created again: what no signature covers, and what nobody has compared yet, is not believed.

Played: somebody who may delete and create Images, and cannot sign them. docs/threat-model.md, "What was booted".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.api.images.image import Image, ImageStatus, Measurements
from provisioner.api.machinery.conditions import find_condition
from provisioner.boot.host.image_store import judge_image
from provisioner.image.trust import judge
from provisioner.join.admission.admit import NotYet
from provisioner.join.admission.tpm import verifier
from provisioner.join.admission.tpm.verifier import is_measured
from provisioner.rules import bootability
from provisioner.rules.bootability import find_without_image
from tests.attestation.firmware_log import BootParts, a_boot, sha256
from tests.attestation.machine import digest_of
from tests.boot.objects import NOON, condition, server
from tests.boot.objects import image as bootable_image
from tests.boot.test_image_store import FILES
from tests.image.trust.test_judge import published, verdict
from tests.join.attesting import Agent, Desk, approved_firmware, is_handed_out, measured_image

FOREIGN = sha256(b"a kernel of its own")


def with_measurement(image: Image, kernel: bytes) -> Image:
    said = Measurements(kernel_authenticode_sha256=digest_of(kernel))
    return replace(image, spec=replace(image.spec, measurements=said))


def of_generation(image: Image, generation: int, observed: int) -> Image:
    """Whose condition Available speaks of the generation `observed`."""
    said = tuple(replace(each, observed_generation=observed) for each in image.status.conditions)
    metadata = replace(image.metadata, generation=generation)
    return replace(image, metadata=metadata, status=replace(image.status, conditions=said))


def judged(image: Image, *, available: str | None) -> Image:
    said = [condition("Verified", "True", "Signed")]
    said += [condition("Available", available, "Stored")] if available is not None else []
    return replace(image, status=ImageStatus(conditions=tuple(said)))


def attested(image: Image) -> Desk:
    """A machine that booted its own kernel, with the TPM of the server and the rest as it should be."""
    agent = Agent.booted(*a_boot(BootParts(kernel=FOREIGN)))
    desk = Desk(registered=agent, firmware=approved_firmware(), image=image)
    answer = desk.joins(agent)
    assert isinstance(answer, NotYet) or is_handed_out(answer), answer
    return desk


LIES: dict[str, Callable[[Image], Image]] = {
    "nobody has looked at": lambda image: judged(image, available=None),
    "no boot host finds right": lambda image: judged(image, available="False"),
    "was added after boot hosts had looked": lambda image: of_generation(image, 2, 1),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_measurement_that_nobody_has_compared_attests_no_machine(lie: str) -> None:
    false = LIES[lie](with_measurement(measured_image(), FOREIGN))
    assert attested(false).cluster.secrets == []
    honest = Agent()
    true = of_generation(measured_image(), 2, 2)
    assert is_handed_out(Desk(registered=honest, firmware=approved_firmware(), image=true).joins(honest))


def test_a_measurement_that_nobody_has_compared_succeeds_without_the_condition_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verifier, is_measured.__name__, lambda image: True)
    false = judged(with_measurement(measured_image(), FOREIGN), available=None)
    attestation = attested(false).server().status.attestation
    assert attestation is not None
    assert attestation.firmware_profile == approved_firmware().name, "it counts as a proved boot"


def changed_after(host: str) -> Image:
    """`host` has said that it has the Image, to which measurements were added since."""
    first = bootable_image(available=None)
    said = judge_image(first, dict(FILES), host, NOON)
    assert said is not None
    written = replace(first.status, conditions=(replace(said.condition, observed_generation=1),), stores=said.stores)
    return replace(first, metadata=replace(first.metadata, generation=2), status=written)


def test_what_a_boot_host_said_before_a_measurement_was_added_counts_for_none_of_it() -> None:
    found = judge_image(changed_after("boot2"), dict(FILES), "boot1", NOON, mismeasured="vmlinuz is another kernel")
    assert found is not None
    assert (found.condition.status, found.stores) == ("False", ())
    honest = judge_image(changed_after("boot2"), dict(FILES), "boot1", NOON)
    assert honest is not None
    assert (honest.condition.status, honest.condition.observed_generation) == ("True", 2)


def test_an_image_whose_signature_was_not_checked_is_not_booted() -> None:
    """Between its creation and the controller's verdict its kernel arguments may be anybody's."""
    image = bootable_image(kernel_arguments=("init=/bin/sh",))
    available = find_condition(image.status.conditions, "Available")
    assert available is not None
    unjudged = replace(image, status=ImageStatus(conditions=(available,)))
    found = find_without_image(server(), image.name, unjudged)
    assert found is not None
    assert found.reason == "ImageNotJudged"
    assert find_without_image(server(), image.name, bootable_image()) is None, "the honest twin"


def test_an_image_whose_signature_was_not_checked_is_booted_without_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootability, "find_unjudged", lambda image: None)
    unjudged = replace(bootable_image(), status=ImageStatus(conditions=bootable_image().status.conditions[:1]))
    assert find_without_image(server(), unjudged.name, unjudged) is None


def older_in_its_place(folder: Path) -> Image:
    """An older image, signed as well, under the name of a newer one."""
    older = published(folder)
    newer = older.name[:-12] + "0123456789ab"
    return replace(older, metadata=replace(older.metadata, name=newer))


def test_an_older_signed_image_does_not_take_the_name_of_a_newer_one(tmp_path: Path) -> None:
    older = older_in_its_place(tmp_path)
    assert verdict(older) == ("False", "Altered")
    named_by_hand = replace(older, metadata=replace(older.metadata, name="gpu-production"))
    assert verdict(named_by_hand) == ("True", "Signed"), "a name without a digest promises none"


def test_an_older_signed_image_takes_the_name_of_a_newer_one_without_the_look_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nothing:
        def search(self, name: str) -> None: ...

    monkeypatch.setattr(judge, "_DIGEST_IN_NAME", Nothing())
    assert verdict(older_in_its_place(tmp_path)) == ("True", "Signed")
