"""The keys of challenges: made, rotated, and read by replicas that need not agree on the moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from provisioner.api.machinery.errors import Retryable
from provisioner.cluster.remembered import Remembered
from provisioner.join.challenge_keys import KEY_READ_SECONDS, LIFE, SECRET_NAME, KeyRotator, read_challenge_keys

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class FakeSecrets:
    """An API server with one namespace of Secrets."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.reads = 0

    def find(self, type_: Any, name: str, *, namespace: str) -> Any:
        assert namespace == "provisioner-attestation"
        self.reads += 1
        return self.found.get(name)

    def create(self, type_: Any, body: Any, *, namespace: str) -> None:
        assert namespace == "provisioner-attestation"
        self.found[body["metadata"]["name"]] = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}

    def replace(self, type_: Any, body: Any) -> None:
        assert body["metadata"]["resourceVersion"] == self.found[SECRET_NAME]["metadata"]["resourceVersion"]
        self.found[SECRET_NAME] = body


class Time:
    def __init__(self) -> None:
        self.seconds = 0.0

    def wall(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


def world() -> tuple[Any, Time, KeyRotator]:
    secrets, time = FakeSecrets(), Time()
    cluster: Any = secrets
    return secrets, time, KeyRotator(cluster=cluster, now=time.wall)


def test_a_key_is_made_once_and_not_again_before_its_time() -> None:
    secrets, time, rotator = world()
    assert rotator.reconcile(SECRET_NAME) == LIFE.total_seconds()
    made = secrets.found[SECRET_NAME]
    time.seconds = 3600
    assert rotator.reconcile(SECRET_NAME) == LIFE.total_seconds() - 3600
    assert secrets.found[SECRET_NAME] is made


def test_what_one_key_sealed_is_opened_for_a_day_after_its_rotation_and_then_no_more() -> None:
    secrets, time, rotator = world()
    rotator.reconcile(SECRET_NAME)
    read = partial(read_challenge_keys, secrets)
    sealed = read().seal(b"a challenge", lambda size: b"\0" * size)
    for opened in (b"a challenge", None):
        time.seconds += LIFE.total_seconds()
        rotator.reconcile(SECRET_NAME)
        assert read().unseal(sealed) == opened


def test_a_replica_reads_the_keys_now_and_then_and_not_for_each_machine() -> None:
    secrets, time, rotator = world()
    rotator.reconcile(SECRET_NAME)
    before = secrets.reads
    read = Remembered(partial(read_challenge_keys, secrets), KEY_READ_SECONDS, time.monotonic)
    for _ in range(100):
        read()
    assert secrets.reads == before + 1
    time.seconds = KEY_READ_SECONDS
    read()
    assert secrets.reads == before + 2


@pytest.mark.parametrize("data", [None, {}, {"current": "?"}, {"current": "c2hvcnQ="}])
def test_without_a_usable_key_a_machine_has_to_come_again_and_the_controller_makes_one(
    data: dict[str, str] | None,
) -> None:
    secrets, _, rotator = world()
    if data is not None:
        secrets.found[SECRET_NAME] = {"metadata": {"name": SECRET_NAME, "resourceVersion": "1"}, "data": data}
    with pytest.raises(Retryable, match="group join makes"):
        read_challenge_keys(secrets)
    rotator.reconcile(SECRET_NAME)
    assert repr(read_challenge_keys(secrets)) == "***"


def test_a_time_of_rotation_in_the_future_does_not_keep_a_key_for_ever() -> None:
    secrets, time, rotator = world()
    time.seconds = 10 * LIFE.total_seconds()
    rotator.reconcile(SECRET_NAME)
    made = secrets.found[SECRET_NAME]["data"]["current"]
    time.seconds = 0
    rotator.reconcile(SECRET_NAME)
    assert secrets.found[SECRET_NAME]["data"]["current"] != made
