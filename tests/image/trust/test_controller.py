"""The condition Verified on a real API server, by the account that writes it and with the policies that bound it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab.control_plane.plane import ControlPlane
from provisioner.api import Image
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import NotFound, ProvisionerError, Refused
from provisioner.cli.main import provisioner
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CONFIG_MAPS, SYSTEM, of
from provisioner.image.finished.publish import publish_image
from provisioner.image.finished.sign import SecretKey
from provisioner.image.trust.controller import ImageTrustController, trust_of
from provisioner.image.trust.document import NAME
from tests.image.made_images import LAYERED, write_layered

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Recorded:
    """Events, as they were told."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def record(self, regarding: Any, type: Any, reason: str, message: str) -> None:  # noqa: A002
        self.reasons.append(reason)


class AsTheServerSays:
    """An informer that is never behind."""

    has_synced = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def get(self, name: str) -> Any:
        return self._cluster.find(of(Image), name)


@pytest.fixture
def no_trust_before(cluster: Cluster) -> Iterator[None]:
    """One document for the whole cluster: no test leaves it to the next."""
    yield
    with suppress(NotFound):
        cluster.delete(CONFIG_MAPS, NAME, namespace=SYSTEM)


@pytest.fixture
def say(cluster: Cluster, account: Callable[[str], Cluster], no_trust_before: None) -> Callable[[str], tuple[str, str]]:
    """Judge an Image anew as provisioner-orders does, and read what stands there: status and reason."""
    orders = account("orders")

    def judged(name: str) -> tuple[str, str]:
        images: Any = AsTheServerSays(orders_reads)
        ImageTrustController(orders, images, trust_of(orders), Recorded(), now=lambda: NOW).reconcile(name)
        said = find_condition(cluster.read(Image, name).status.conditions, "Verified")
        assert said is not None
        return said.status, said.reason

    orders_reads = cluster
    return judged


def trust(cluster: Cluster, **data: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": SYSTEM}}
    cluster.apply({**body, "data": {key.replace("_", "."): text for key, text in data.items()}}, manager="tests")


def publish(folder: Path, cluster: Cluster, key: SecretKey, unique: str) -> str:
    contents = {**LAYERED, "layer.site": unique.encode() + random.randbytes(8)}
    return publish_image(write_layered(folder / "b", key, contents, unique), folder / "s", key.public, cluster).name


def test_a_signature_is_proved_by_the_controller_and_a_revoked_image_is_told_of(
    tmp_path: Path,
    cluster: Cluster,
    control_plane: ControlPlane,
    say: Callable[[str], tuple[str, str]],
    unique: str,
) -> None:
    key, thief = SecretKey.generate(), SecretKey.generate()
    ours, theirs = publish(tmp_path / "1", cluster, key, unique), publish(tmp_path / "2", cluster, thief, unique)
    assert say(ours) == ("Unknown", "NoTrustedKeys")
    trust(cluster, image_pub=key.public.encode())
    assert say(ours) == ("True", "Signed")
    assert say(theirs) == ("False", "SignatureInvalid")
    trust(cluster, image_pub=key.public.encode() + thief.public.encode())
    assert say(theirs) == ("True", "Signed"), "two keys are valid while one takes the place of the other"
    words = ["image", "revoke", ours, "-m", "a hole in its kernel", "--kubeconfig", str(control_plane.kubeconfig)]
    done = CliRunner().invoke(provisioner, words)
    assert done.exit_code == 0, done.output
    assert say(ours) == ("False", "Revoked")


def test_a_stolen_boot_account_cannot_say_that_an_image_is_believed(
    tmp_path: Path, cluster: Cluster, account: Callable[[str], Cluster], unique: str
) -> None:
    name = publish(tmp_path, cluster, SecretKey.generate(), unique)
    boot, orders = account("boot"), account("orders")

    def said(type_: str) -> dict[str, Any]:
        time_ = "2026-01-02T12:00:00Z"
        condition = {"type": type_, "status": "True", "reason": "Made", "message": "up", "lastTransitionTime": time_}
        return {"conditions": [condition]}

    refused_within(lambda: boot.apply_status(Image, name, said("Verified"), manager="thief"), "and nothing else")
    refused_within(lambda: orders.apply_status(Image, name, said("Available"), manager="thief"), "and nothing else")
    boot.apply_status(Image, name, said("Available"), manager="boot")
    orders.apply_status(Image, name, said("Verified"), manager="orders")
    with pytest.raises(Refused):
        boot.find(CONFIG_MAPS, NAME, namespace=SYSTEM)


def refused_within(act: Callable[[], object], words: str, seconds: float = 30.0) -> None:
    """A policy is in force some moments after it was made; what it lets pass before is undone by nobody."""

    def refusal() -> str | None:
        try:
            act()
        except ProvisionerError as error:
            return str(error)
        return None

    deadline = time.monotonic() + seconds
    while (said := refusal()) is None:
        assert time.monotonic() < deadline, "it was let"
        time.sleep(0.5)
    assert words in said
