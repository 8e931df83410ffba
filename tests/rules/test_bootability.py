"""Why a server cannot boot, as a table: the first obstacle, by its reason, and what one can do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import Image, Server
from provisioner.api.servers.server import ServerStatus
from provisioner.rules.bootability import (
    availability_of,
    find_excluded,
    find_obstacle,
    find_without_image,
    find_without_pool,
    runs_as_other_node,
)
from tests.boot.objects import condition, image, pool, rack, server

DUPLICATE = condition("Accepted", "False", "Duplicate", "r01-u01 claims what r01-u02 has already")
OF_THE_RACK = condition("Accepted", "False", "NoRack", "in no rack")


def having(*conditions: Any, **status: Any) -> Server:
    return server(status=ServerStatus(address="10.80.0.21", subnet_name="boot", conditions=conditions, **status))


UNHEARD = replace(image(), status=replace(image().status, conditions=()))
UNJUDGED = replace(image(), status=replace(image().status, conditions=image().status.conditions[:1]))
ARM64 = image(architecture="arm64")


def judged(reason: str, status: str = "False") -> Image:
    known = image()
    said = condition("Verified", status, reason, "as it was signed")
    return replace(known, status=replace(known.status, conditions=(*known.status.conditions, said)))


@pytest.mark.parametrize(
    ("sentence", "reason", "what", "remedy"),
    [
        ("nothing is in the way", None, {}, ""),
        ("nobody accepted it", "PendingAcceptance", {"server": server(acceptance="Pending")}, "accept r01-u01"),
        ("it was rejected", "Rejected", {"server": server(acceptance="Rejected")}, "accept r01-u01"),
        ("it shall be off", "PoweredOff", {"server": server(power_state="Off")}, "kubectl patch server r01-u01"),
        ("another has what it claims", "Duplicate", {"server": having(DUPLICATE)}, "kubectl delete server r01-u01"),
        ("that condition's other reasons count as what they are", None, {"server": having(OF_THE_RACK)}, ""),
        ("in no rack", "NoRack", {"server": server(rack_ref=None), "rack": None}, "spec.rackRef"),
        ("in a rack that is gone", "NoRack", {"rack": None}, "rack register"),
        ("without an address", "NoAddress", {"server": server(status=ServerStatus())}, "kubectl describe"),
        ("in no pool", "NoNodePool", {"server": server(node_pool_ref=None), "pool": None}, "nodePoolRef"),
        ("in a pool that is gone", "NodePoolMissing", {"pool": None}, "create it"),
        ("its TPM is looked at when it joins", None, {"pool": pool(attestation="Required")}, ""),
        ("no such image", "ImageMissing", {"image": None}, "image publish"),
        ("an image of another architecture", "ImageWrongArchitecture", {"image": ARM64}, "name an Image"),
        ("an image that no boot host has", "ImageUnavailable", {"image": image(available="False")}, "copy the image"),
        ("an image that nobody signed who is believed", "ImageNotVerified", {"image": judged("Altered")}, "its key"),
        ("an image that was revoked", "ImageRevoked", {"image": judged("Revoked")}, "assign another"),
        ("an image that is believed", None, {"image": judged("Signed", "True")}, ""),
        ("an image of a site without trusted keys", None, {"image": judged("NoTrustedKeys", "Unknown")}, ""),
        ("an image whose signature nobody has checked", "ImageNotJudged", {"image": UNJUDGED}, "group orders"),
        ("an image that no boot host spoke of", "ImageUnavailable", {"image": UNHEARD}, "boot service"),
    ],
)
def test_it_cannot_boot(sentence: str, reason: str | None, what: dict[str, Any], remedy: str) -> None:
    facts = {"server": server(), "pool": pool(), "image": image(), "rack": rack()} | what
    found = find_obstacle(**facts)
    assert (found.reason if found is not None else None) == reason, sentence
    if found is not None:
        assert remedy in found.remedy
        assert found.words == f"{found.message}; remedy: {found.remedy}"
        assert found.unwanted == (reason in ("PendingAcceptance", "Rejected", "PoweredOff"))


@pytest.mark.parametrize("type_", ["Available", "Verified"])
def test_who_follows_an_image_hears_of_what_its_words_depend_on(type_: str) -> None:
    body = {"status": {"conditions": [{"type": type_, "status": "True", "message": "…"}]}}
    changed = {"status": {"conditions": [{"type": type_, "status": "False", "message": "…"}]}}
    assert availability_of(body) != availability_of(changed)


def test_rollouts_leave_alone_what_a_person_excluded_and_it_boots_all_the_same() -> None:
    excluded = server(upgrades="Excluded")
    found = find_excluded(excluded)
    assert found is not None
    assert found.reason == "Excluded"
    assert "kubectl patch server r01-u01" in found.remedy
    assert find_excluded(server()) is None
    assert find_obstacle(excluded, pool(), image(), rack()) is None


def test_the_image_that_is_named_is_the_one_that_is_missing() -> None:
    found = find_without_image(server(), "gpu-2", None)
    assert found is not None
    assert found.message == "Image 'gpu-2' does not exist"
    unnamed = find_without_image(server(), None, None)
    assert unnamed is not None
    assert unnamed.reason == "NoImage"


def test_a_machine_that_runs_under_another_name_says_both_ways_out() -> None:
    remedy = runs_as_other_node(server(), "worker-7").remedy
    assert "kubectl delete server r01-u01" in remedy
    assert "kubectl delete node worker-7" in remedy


def test_of_a_server_that_is_to_leave_a_pool_that_is_gone_the_pool_is_wanted_back() -> None:
    """To name another one is what was done already, and helps nobody who has to know what runs there."""
    leaving = server(node_pool_ref="other", status=ServerStatus(node_pool_ref="gone"))
    found = find_without_pool(leaving, None, "gone")
    assert found is not None
    assert found.message == "NodePool 'gone' of Server 'r01-u01' does not exist"
    assert found.remedy.startswith("create it again")
