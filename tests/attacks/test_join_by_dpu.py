"""Joins that a DPU passes on for its host, and who would like them to. docs/threat-model.md, "Behind a DPU"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.api.servers.dpu import DPU
from provisioner.join.admission import admit
from tests.join.conftest import accounts, make_world, world
from tests.join.front import Front, serve_behind_nginx
from tests.join.samples import body
from tests.join.world import World

__all__ = ["accounts", "make_world", "world"]

HOST, CARD, OTHER_CARD = "127.0.0.21", "127.0.0.31", "127.0.0.32"


class Site:
    """A server and the DPU in it, both with a boot that is ordered, and another server's DPU."""

    def __init__(self, make_world: Callable[..., World]) -> None:
        self.host, self.card, other = make_world("host"), make_world("card"), make_world("other")
        for each, address in ((self.host, HOST), (self.card, CARD), (other, OTHER_CARD)):
            each.apply_status("provisioner-inventory", {"address": address})
            each.address = address
            each.order("order-1")
        for each, host in ((self.card, self.host.name), (other, f"{self.host.name}-x")):
            card = DPU(host_ref=host, host_boot="Proxied")
            each.change_spec(acceptance="Pending", architecture="arm64", dpu=card)
            each.change_spec(acceptance="Accepted")
        self._cards = {self.host.name: [self.card.name]}
        by_mac = {each.mac: each.name for each in (self.host, self.card, other)}
        self.service = self.host.service(
            find_server=lambda mac: by_mac.get(mac), find_dpus=lambda server: self._cards.get(server, ())
        )


@pytest.fixture
def site(make_world: Callable[..., World]) -> Site:
    return Site(make_world)


def asks(world: World) -> bytes:
    return body(macAddress=world.mac)


def outcome(front: Front, of: World, source: str, *, by_dpu: bool = False) -> tuple[int, str | None]:
    reply = front.post(asks(of), source, by_dpu=by_dpu)
    return reply.status, reply.body.get("nodeName") or reply.body.get("reason")


def test_a_host_joins_through_its_dpu_and_through_nobody_elses(site: Site, tmp_path: Path) -> None:
    with serve_behind_nginx(site.service, tmp_path) as front:
        assert outcome(front, site.host, OTHER_CARD, by_dpu=True) == (403, "WrongAddress")
        assert outcome(front, site.host, HOST, by_dpu=True) == (403, "WrongAddress")
        assert site.host.tokens() == []
        assert outcome(front, site.host, CARD, by_dpu=True) == (200, site.host.name)


def test_a_card_that_was_not_accepted_passes_nothing_on(site: Site, tmp_path: Path) -> None:
    site.card.change_spec(acceptance="Pending")
    with serve_behind_nginx(site.service, tmp_path) as front:
        assert outcome(front, site.host, CARD, by_dpu=True) == (403, "WrongAddress")
        site.card.change_spec(acceptance="Accepted")
        assert outcome(front, site.host, CARD, by_dpu=True) == (200, site.host.name)


def test_who_takes_the_hosts_address_on_the_boot_network_gets_nothing(site: Site, tmp_path: Path) -> None:
    """What stays open where a server boots by its own address."""
    with serve_behind_nginx(site.service, tmp_path) as front:
        assert outcome(front, site.host, HOST) == (403, "WrongAddress")
        site.card.change_spec(dpu=DPU(host_ref=site.host.name))
        assert outcome(front, site.host, HOST) == (200, site.host.name), "it would, if its boot did not go by its DPU"


def test_a_host_does_not_become_its_own_dpu(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it sends through its DPU comes from that one's address, and the DPU is to boot at this moment, too."""
    with serve_behind_nginx(site.service, tmp_path) as front:
        assert outcome(front, site.card, CARD, by_dpu=True) == (403, "WrongAddress")
        for path in ("/by-dpu/v1/join", "/v1/../by-dpu/v1/join", "/v1/%2e%2e/by-dpu/v1/join", "//by-dpu//v1/join"):
            assert front.post(asks(site.host), CARD, to=path).status in (400, 404), path
            assert front.post(asks(site.host), CARD, to=path, by_dpu=True).status in (400, 404), path
            assert front.post_in_the_clear(asks(site.host), CARD, to=path).status in (400, 404), path
        assert site.card.tokens() == []
        with monkeypatch.context() as patched:
            patched.setattr(admit, "find_elsewhere", lambda *_, **__: None)
            assert outcome(front, site.card, CARD, by_dpu=True)[0] == 200, "it would, by its address alone"


def test_a_dpu_joins_for_itself_by_its_own_address(site: Site, tmp_path: Path) -> None:
    with serve_behind_nginx(site.service, tmp_path) as front:
        assert outcome(front, site.card, CARD) == (200, site.card.name)
