"""A machine on the boot network wants another's token. docs/threat-model.md, "Neighbour on the boot network"."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.pools.node_pool import NodePool
from provisioner.cluster.resources import of
from provisioner.join.admission.admit import Denied
from provisioner.join.admission.configuration import JoinConfiguration
from tests.join.conftest import accounts, make_world, world
from tests.join.front import post_as_nginx as post
from tests.join.front import serve, serve_behind_nginx
from tests.join.samples import OTHER_KEY, body
from tests.join.world import World

__all__ = ["accounts", "make_world", "world"]

NEIGHBOUR = "127.0.0.99"
VICTIM = "127.0.0.21"
PROXY = "127.0.0.50"


@pytest.fixture
def victim(world: World) -> World:
    """A server whose address is on this machine's loopback, so that real connections can come from it."""
    world.apply_status("provisioner-inventory", {"address": VICTIM})
    world.address = VICTIM
    return world


def test_a_neighbour_who_asks_from_its_own_address_gets_nothing(world: World, tmp_path: Path) -> None:
    before = world.server()
    with serve(world.service(), tmp_path / "s") as path:
        reply = post(path, body(macAddress=world.mac, requestKey=OTHER_KEY), NEIGHBOUR)
    assert (reply.status, reply.reason) == (403, "WrongAddress")
    assert world.tokens() == []
    assert world.server() == before, "a neighbour cannot write into a server's record"
    assert "JoinRefused" in world.recorded.reasons()
    world.joined()


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-For",
        "X-Real-IP",
        "Forwarded",
        "X-Client-IP",
        "True-Client-IP",
        "X_Forwarded_For",
        "x-forwarded-FOR",
    ],
)
def test_a_header_that_a_neighbour_writes_itself_never_counts(victim: World, tmp_path: Path, header: str) -> None:
    """Through nginx as the boot host runs it, over TLS."""
    lie = f"for={VICTIM}" if header == "Forwarded" else VICTIM
    with serve_behind_nginx(victim.service(), tmp_path) as front:
        reply = front.post(body(macAddress=victim.mac, requestKey=OTHER_KEY), NEIGHBOUR, {header: lie})
        assert (reply.status, reply.reason) == (403, "WrongAddress")
        assert NEIGHBOUR in reply.body["message"]
        assert front.post(body(macAddress=victim.mac), VICTIM, {header: NEIGHBOUR}).status == 200


def test_a_header_that_a_neighbour_writes_before_a_proxy_that_appends_never_counts(
    victim: World, tmp_path: Path
) -> None:
    """Also where a site's own proxy appends to the header instead of overwriting it."""
    with serve_behind_nginx(victim.service(), tmp_path, trusted_proxies=(f"{PROXY}/32",)) as front:
        appended = {"X-Forwarded-For": f"{VICTIM}, {NEIGHBOUR}"}
        reply = front.post(body(macAddress=victim.mac, requestKey=OTHER_KEY), PROXY, appended)
    assert (reply.status, reply.reason) == (403, "WrongAddress")
    assert NEIGHBOUR in reply.body["message"]


def test_a_request_in_the_clear_is_refused(victim: World, tmp_path: Path) -> None:
    with serve_behind_nginx(victim.service(), tmp_path) as front:
        reply = front.post_in_the_clear(body(macAddress=victim.mac), VICTIM)
    assert (reply.status, reply.reason) == (403, "NotEncrypted")
    assert victim.tokens() == []


def test_a_captured_request_is_worth_nothing_to_a_neighbour(world: World, tmp_path: Path) -> None:
    """The very bytes, request key included, from another address."""
    captured = body(macAddress=world.mac)
    with serve(world.service(), tmp_path / "s") as path:
        assert post(path, captured, world.address).status == 200
        tokens = world.tokens()
        assert post(path, captured, NEIGHBOUR).reason == "WrongAddress"
    assert world.tokens() == tokens


def test_a_neighbour_who_takes_the_address_after_the_join_gets_nothing_and_is_noticed(world: World) -> None:
    """ARP spoofing: the source address is right, the key is not known to it."""
    world.joined()
    assert world.refused(requestKey=OTHER_KEY).reason == "AlreadyFetched"
    join = world.server().status.join
    assert join is not None
    assert join.refused_reason == "AlreadyFetched"


def test_open_until_attestation_a_neighbour_who_takes_the_address_in_time_wins_and_is_noticed(world: World) -> None:
    """What pools with attestation Optional accept: whoever speaks from the address first gets the order's one token.

    The victim's own request is then refused and recorded, on which the boot controller orders another boot.
    """
    assert isinstance(world.join(requestKey=OTHER_KEY), JoinConfiguration)
    assert world.refused().reason == "AlreadyFetched"
    join = world.server().status.join
    assert join is not None
    assert join.refused_time is not None
    condition = find_condition(world.server().status.conditions, "Joined")
    assert condition is not None
    assert condition.reason == "AlreadyFetched"
    contested = find_condition(world.server().status.conditions, "CredentialContested")
    assert contested is not None
    assert contested.status == "True"


def test_a_pool_that_requires_attestation_admits_nobody_without_it(world: World) -> None:
    world.admin.patch(of(NodePool), world.name, {"spec": {"attestation": "Required"}})
    assert world.refused().reason == "AttestationRequired"
    forged = world.refused(evidence={"type": "TPM2", "quote": "forged"})
    assert forged.reason == "EvidenceUnknown", "of a service without the verifier; with it: test_join_attestation.py"
    assert world.tokens() == []


def test_a_machine_that_is_not_accepted_gets_nothing(world: World) -> None:
    world.change_spec(acceptance="Pending")
    answer = world.join()
    assert isinstance(answer, Denied)
    assert answer.reason == "NotAccepted"
    assert world.tokens() == []
