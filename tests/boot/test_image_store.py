"""The condition Available: what a boot host has, and what it may say of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner.api import Image
from provisioner.boot.host.image_store import Availability, files_of, judge_image
from tests.boot.objects import NOON, STORE, image, layered_image

FILES: dict[str, int | None] = {
    f"{STORE}/{name}": 4 for name in ("manifest", "vmlinuz", "stage1.img", "root.squashfs")
} | {f"{STORE}/manifest.sig": 99}


LACKING = {**FILES, f"{STORE}/manifest": None}


def judged(
    sizes: dict[str, int | None], before: Availability | None = None, host: str = "boot1", minutes: float = 0
) -> Availability | None:
    body: Image = image(available=None)
    if before is not None:
        written = replace(
            body.status, conditions=(before.condition,), stores=before.stores, lacking_host=before.lacking_host
        )
        body = replace(body, status=written)
    return judge_image(body, sizes, host, NOON + timedelta(minutes=minutes))


def said(
    sizes: dict[str, int | None], before: Availability | None = None, host: str = "boot1", minutes: float = 0
) -> Availability:
    availability = judged(sizes, before, host, minutes)
    assert availability is not None
    return availability


def hosts(availability: Availability) -> list[str]:
    return [report.host for report in availability.stores]


def test_an_image_with_all_its_files_is_available() -> None:
    availability = said(dict(FILES))
    assert (availability.condition.status, availability.condition.reason) == ("True", "Stored")
    assert (hosts(availability), availability.news) == (["boot1"], True)
    assert {file.path for file in files_of(image())} == set(FILES)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("size", "words"), [(None, "is missing"), (0, "has 0 bytes")])
def test_a_file_that_is_missing_or_empty_is_named(name: str, size: int | None, words: str) -> None:
    availability = said({**FILES, name: size})
    assert availability.condition.status == "False"
    assert f"{name} {words}" in availability.condition.message
    assert availability.stores == ()


LAYERED = layered_image("base", "driver", "xlast")
SERVED: dict[str, int | None] = {
    **{artifact.path: 4 for artifact in (LAYERED.spec.kernel, LAYERED.spec.stage1, *LAYERED.spec.layers)},
    f"{STORE}/manifest": 4,
    f"{STORE}/manifest.sig": 99,
}


def test_an_image_in_layers_is_available_by_its_parts_and_documents_are_none_of_what_servers_need() -> None:
    assert {file.path for file in files_of(LAYERED)} == set(SERVED)
    availability = judge_image(LAYERED, SERVED, "boot1", NOON)
    assert availability is not None
    assert availability.condition.status == "True"
    assert LAYERED.spec.documents[0].path not in SERVED


@pytest.mark.parametrize("path", SERVED)
def test_each_part_that_a_server_fetches_must_be_there(path: str) -> None:
    availability = judge_image(LAYERED, {**SERVED, path: None}, "boot1", NOON)
    assert availability is not None
    assert f"{path} is missing" in availability.condition.message


def test_a_file_of_another_size_is_named() -> None:
    assert "root.squashfs has 5 bytes instead of 4" in said({**FILES, f"{STORE}/root.squashfs": 5}).condition.message


def test_what_stands_is_not_written_again() -> None:
    stored = said(dict(FILES))
    assert judged(dict(FILES), stored, minutes=4) is None
    missing = said(dict(LACKING))
    assert judged(dict(LACKING), missing) is None
    assert judged(dict(LACKING), missing, host="boot2") is None, "boot1 said already that nobody has it"


def test_a_host_repeats_itself_every_few_minutes_without_an_event() -> None:
    stored = said(dict(FILES))
    repeated = said(dict(FILES), stored, minutes=5)
    assert repeated.stores[0].time > stored.stores[0].time
    assert (repeated.condition, repeated.news) == (stored.condition, False)


def test_every_host_that_has_the_files_is_named() -> None:
    both = said(dict(FILES), said(dict(FILES)), host="boot2", minutes=1)
    assert hosts(both) == ["boot1", "boot2"]
    assert "boot hosts 'boot1', 'boot2'" in both.condition.message
    assert not both.news
    one = said({}, both, host="boot1", minutes=2)
    assert (one.condition.status, hosts(one)) == ("True", ["boot2"])


def test_a_host_that_lacks_files_does_not_contradict_one_that_has_them() -> None:
    stored = said(dict(FILES), host="boot1")
    assert judged({}, stored, host="boot2", minutes=14) is None


def test_a_host_that_lacks_files_takes_back_the_word_of_one_that_is_gone() -> None:
    stored = said(dict(FILES), host="replaced")
    taken_back = said({}, stored, host="boot2", minutes=16)
    assert (taken_back.condition.status, taken_back.stores, taken_back.news) == ("False", (), True)
    assert "in the image store of boot host 'boot2'" in taken_back.condition.message
    assert taken_back.condition.last_transition_time > stored.condition.last_transition_time


def test_who_lacks_files_is_read_of_its_field_and_not_of_the_words() -> None:
    missing = said(dict(LACKING), host="boot1")
    reworded = replace(missing, condition=replace(missing.condition, message="'boot2' is not meant"))
    assert judged(dict(LACKING), reworded, host="boot2") is None, "boot1 said already that it lacks some"
    assert said(dict(LACKING), reworded, host="boot1").condition.message == missing.condition.message
    of_an_older_release = replace(missing, lacking_host=None)
    assert said(dict(LACKING), of_an_older_release, host="boot2").lacking_host == "boot2"
    assert said(dict(FILES), missing, host="boot2").lacking_host is None


def test_a_word_from_the_future_does_not_last_for_ever() -> None:
    stored = said(dict(FILES), host="replaced", minutes=100_000)
    assert said({}, stored, host="boot2").condition.status == "False"


def test_a_host_that_loses_files_says_so_and_one_that_gets_them_too() -> None:
    lost = said({}, said(dict(FILES)))
    assert lost.condition.status == "False"
    regained = said(dict(FILES), lost, host="boot2")
    assert regained.condition.status == "True"
    assert "'boot2'" in regained.condition.message
