"""What an Image says that TPMs show of its kernel: no signature covers it, so that boot hosts look at the file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from provisioner.api import Image
from provisioner.api.images.image import Measurements
from provisioner.api.machinery.codec import encode
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.boot.host import image_store
from provisioner.boot.host.image_store import StoreWatch, files_of, kernel_problem
from provisioner.image.finished.check import check_image
from provisioner.image.finished.publish import image_object
from provisioner.image.trust.judge import judge
from tests.attestation.test_measurements import a_program
from tests.boot.objects import NOON, image
from tests.cluster.fake_events import FakeEvents
from tests.image.made_images import WRITERS
from tests.image.trust.test_judge import KEY, TRUST

KERNEL = a_program()
FOREIGN = a_program(trailing=b"a kernel of its own")


def measured(said: bytes, kernel: bytes = KERNEL) -> Image:
    """An Image of `kernel` that says what firmware measures of `said`."""
    plain = image(available=None)
    digest = f"sha256:{hashlib.sha256(kernel).hexdigest()}"
    spec = replace(
        plain.spec,
        kernel=replace(plain.spec.kernel, sha256=digest, size_bytes=len(kernel)),
        measurements=Measurements(kernel_authenticode_sha256=authenticode_sha256(said)),
    )
    return replace(plain, spec=spec)


class Statuses:
    """The API server, as far as a watch of the store writes to it."""

    def __init__(self) -> None:
        self.said: list[Mapping[str, Any]] = []

    def apply_status(self, kind: Any, name: str, status: Mapping[str, Any], **_: Any) -> None:
        self.said.append(status["conditions"][0])


def looked(store: Path, of: Image) -> Mapping[str, Any]:
    """The condition Available after a boot host with every file has looked."""
    for file in files_of(of):
        path = store / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (file.size_bytes or 1))
    (store / of.spec.kernel.path).write_bytes(KERNEL)
    statuses = Statuses()
    watch = StoreWatch(cast(Any, statuses), cast(Any, None), store, cast(Any, FakeEvents()), host="boot1")
    watch.look(encode(of))
    return statuses.said[-1]


def test_an_image_that_says_another_kernels_measurement_is_not_available(tmp_path: Path) -> None:
    false = looked(tmp_path / "false", measured(FOREIGN))
    assert false["status"] == "False"
    assert "the Image says that TPMs show" in false["message"]
    honest = looked(tmp_path / "honest", measured(KERNEL))
    assert honest["status"] == "True"


def test_another_kernels_measurement_succeeds_without_the_look_at_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_store, "kernel_problem", lambda image, kernel: None)
    assert looked(tmp_path, measured(FOREIGN))["status"] == "True"


def test_a_kernel_in_the_store_that_is_another_file_or_no_program_measures_nothing() -> None:
    assert "is another file" in (kernel_problem(measured(KERNEL), FOREIGN) or "")
    assert "cannot be measured" in (kernel_problem(measured(KERNEL, b"no program"), b"no program") or "")
    assert kernel_problem(image(), b"whatever") is None, "an Image of before there were measurements says none"


def test_what_tpms_show_of_a_signed_image_does_not_make_it_another_than_was_signed(tmp_path: Path) -> None:
    """Publishing adds it to what the manifest says."""
    signed = image_object(check_image(WRITERS[2](tmp_path / "store", KEY), KEY.public), KERNEL)
    assert signed.spec.measurements is not None
    said = judge(signed, TRUST, NOON)
    assert said is not None
    assert (said.status, said.reason) == ("True", "Signed")
