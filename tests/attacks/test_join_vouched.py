"""Hosts without a TPM that join by the word of the DPU in them, and who would like to. docs/threat-model.md, "Behind a
DPU". Against the join service behind nginx; what a DPU has proved is written as the join service writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.api import NodePool
from provisioner.api.machinery.codec import to_json
from provisioner.cluster.resources import of
from provisioner.join.admission import admit, vouched
from tests.attacks.test_join_by_dpu import CARD, HOST, OTHER_CARD, Site, outcome
from tests.join.conftest import accounts, make_world, world
from tests.join.front import serve_behind_nginx
from tests.join.world import World

__all__ = ["accounts", "make_world", "world"]

BOOT = "dddddddd-8c55-4b57-9f8f-0d8a5a3f1e11"


@pytest.fixture
def site(make_world: Callable[..., World]) -> Site:
    """The host's pool takes nobody without proof, and its DPU's word for one."""
    made = Site(make_world)
    spec = {"attestation": "Required", "withoutTPM": "VouchedByDPU"}
    made.host.admin.patch(of(NodePool), made.host.name, {"spec": spec})
    return made


def attest(card: World, *, boot_id: str = BOOT, order: str = "order-1") -> None:
    """What the cluster has on record of a DPU that proved the boot which runs on it."""
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }
    proved = {"orderID": order, "bootID": boot_id, "endorsementKeySHA256": "sha256:" + "ee" * 32}
    card.apply_status("provisioner-join", {"attestation": proved, "join": {"orderID": order, "bootID": boot_id}})
    ordered = to_json(card.server().status.order)
    card.apply_status("provisioner-boot-controller", {"order": ordered, "bootID": BOOT, "conditions": [ready]})


def test_a_host_behind_an_attested_dpu_joins_and_behind_one_that_proved_nothing_does_not(
    site: Site, tmp_path: Path
) -> None:
    with serve_behind_nginx(site.service, tmp_path) as front:
        assert outcome(front, site.host, CARD, by_dpu=True) == (403, "AttestationRequired")
        attest(site.card, boot_id="11111111-8c55-4b57-9f8f-0d8a5a3f1e11")
        assert outcome(front, site.host, CARD, by_dpu=True) == (403, "AttestationRequired"), "it runs another boot"
        assert site.host.tokens() == []
        attest(site.card)
        assert outcome(front, site.host, CARD, by_dpu=True) == (200, site.host.name)


def test_a_neighbour_that_says_it_passes_on_and_another_hosts_dpu_get_nothing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attest(site.card)
    with serve_behind_nginx(site.service, tmp_path) as front:
        for source in ("127.0.0.77", OTHER_CARD, HOST):
            assert outcome(front, site.host, source, by_dpu=True) == (403, "WrongAddress"), source
            assert outcome(front, site.host, source)[0] == 403, source
        assert outcome(front, site.host, CARD) == (403, "WrongAddress"), "the DPU's address, where machines ask"
        assert site.host.tokens() == []
        with monkeypatch.context() as patched:
            patched.setattr(admit, "find_elsewhere", lambda *_, **__: None)
            assert outcome(front, site.host, OTHER_CARD, by_dpu=True) == (403, "AttestationRequired"), "by two rules"
        assert outcome(front, site.host, CARD, by_dpu=True) == (200, site.host.name)


def test_without_the_rule_a_dpu_that_proved_nothing_would_do(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_behind_nginx(site.service, tmp_path) as front:
        assert outcome(front, site.host, CARD, by_dpu=True) == (403, "AttestationRequired")
        monkeypatch.setattr(vouched, "find_unattested", lambda dpu: None)
        assert outcome(front, site.host, CARD, by_dpu=True) == (200, site.host.name)
