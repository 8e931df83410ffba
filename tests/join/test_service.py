"""The join service against a real API server, with no more rights than it is given in production."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from provisioner.api.images.image import Image
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import Refused, Retryable
from provisioner.api.machinery.meta import parse_time
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.dpu import DPU
from provisioner.api.servers.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import NODES, SECRETS, of
from provisioner.join.admission.admit import Challenged, Denied, NotYet
from provisioner.join.admission.attestation import Challenge, EvidenceQuestion, Proof, Proven
from provisioner.join.admission.configuration import JoinConfiguration
from provisioner.join.admission.service import find_dpus_in, find_server_in
from tests.boot.fake_source import FakeSource
from tests.join import samples
from tests.join.samples import OTHER_KEY, key_digest
from tests.join.world import World


def test_an_ordered_boot_gets_its_configuration_once(world: World) -> None:
    configuration = world.joined()
    wire = configuration.to_wire()
    assert wire["nodeName"] == world.name
    assert wire["nodeAddress"] == world.address
    assert wire["apiServer"] == world.plane.server_url
    assert wire["clusterCA"] == world.plane.ca_pem
    assert wire["kubeletConfiguration"]["kind"] == "KubeletConfiguration"
    token_id, _, secret = wire["bootstrapToken"].partition(".")
    assert world.tokens() == [token_id]
    assert secret not in repr(configuration)

    server = world.server()
    join = server.status.join
    assert join is not None
    assert (join.order_id, join.token_id) == ("order-1", token_id)
    assert join.request_key_sha256 == world.request().request_key_sha256
    condition = find_condition(server.status.conditions, "Joined")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "TokenIssued")
    assert world.recorded.reasons() == ["JoinConfigurationIssued"]

    refusal = world.refused(requestKey=OTHER_KEY)
    assert refusal.reason == "AlreadyFetched"
    join = world.server().status.join
    assert join is not None
    assert join.refused_reason == "AlreadyFetched"
    assert join.refused_time is not None
    assert join.request_key_sha256 == key_digest("ab" * 32)
    assert world.tokens() == [token_id]


def test_the_token_is_valid_for_at_most_ten_minutes(world: World) -> None:
    token_id = world.joined().bootstrap_token.reveal().split(".")[0]
    secret = world.admin.get(SECRETS, f"bootstrap-token-{token_id}", namespace="kube-system")
    expiration = parse_time(base64.b64decode(secret["data"]["expiration"]).decode())
    assert expiration - world.clock() <= timedelta(seconds=600)
    assert set(secret["data"]) == {
        "token-id",
        "token-secret",
        "expiration",
        "usage-bootstrap-authentication",
        "auth-extra-groups",
        "description",
    }


def test_a_repeat_gets_a_fresh_token_and_the_older_one_dies(world: World) -> None:
    first, second = world.joined(), world.joined()
    assert first.bootstrap_token != second.bootstrap_token
    assert world.tokens() == [second.bootstrap_token.reveal().split(".")[0]]


def test_of_two_racing_requests_exactly_one_wins(world: World) -> None:
    together = threading.Barrier(2)

    class Together:
        """Both have read the server before either writes."""

        def __init__(self, cluster: Cluster) -> None:
            self._cluster = cluster
            self._first = True

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cluster, name)

        def apply_status(self, *arguments: Any, **named: Any) -> Any:
            if self._first:
                self._first = False
                together.wait(30)
            return self._cluster.apply_status(*arguments, **named)

    def join(key: str) -> Any:
        return world.service(Together(world.service_cluster)).join(world.request(requestKey=key), world.address)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(join, ("ab" * 32, "cd" * 32)))
    winners = [answer for answer in answers if isinstance(answer, JoinConfiguration)]
    losers = [answer for answer in answers if isinstance(answer, Denied)]
    assert (len(winners), len(losers)) == (1, 1)
    assert losers[0].reason == "AlreadyFetched"
    assert world.tokens() == [winners[0].bootstrap_token.reveal().split(".")[0]]


def test_a_repeat_that_overtakes_its_first_try_leaves_one_live_token(world: World) -> None:
    """The first try is held up after its claim; the agent gave up waiting and asked again."""
    later: list[Any] = []

    class HeldUp:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.service_cluster, name)

        def create(self, *arguments: Any, **named: Any) -> Any:
            later.append(world.join())
            return world.service_cluster.create(*arguments, **named)

    first = world.service(HeldUp()).join(world.request(), world.address)
    assert isinstance(first, NotYet)
    assert first.reason == "Superseded"
    assert isinstance(later[0], JoinConfiguration)
    assert world.tokens() == [later[0].bootstrap_token.reveal().split(".")[0]]


class Crash(BaseException):
    """The process died here."""


class Dying:
    """A cluster whose client dies before or after its n-th call."""

    def __init__(self, cluster: Cluster, calls: int, *, before: bool) -> None:
        self._cluster = cluster
        self._calls = calls
        self._before = before
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._cluster, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if self._before and len(self.done) == self._calls:
                raise Crash(name)
            result = real(*arguments, **named)
            self.done.append(name)
            if not self._before and len(self.done) > self._calls:
                raise Crash(name)
            return result

        return call


@pytest.mark.parametrize("repeats", [0, 1])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_after_a_crash_at_any_call_the_same_machine_joins_and_one_token_lives(
    make_world: Callable[..., World], before: bool, repeats: int
) -> None:
    world = make_world()
    world.order("order-1")
    for _ in range(repeats):
        world.joined()
    crashes, reached = 0, set()
    while True:
        dying = Dying(world.service_cluster, crashes, before=before)
        try:
            world.service(dying).join(world.request(), world.address)
        except Crash as crash:
            reached.add(str(crash))
            configuration = world.joined()
            assert world.tokens() == [configuration.bootstrap_token.reveal().split(".")[0]]
            crashes += 1
            continue
        break
    assert reached >= {"find", "apply_status", "create", "read"}
    assert crashes >= 7


def test_a_new_order_hands_out_again_and_removes_the_older_token(world: World) -> None:
    older = world.joined()
    world.order("order-2")
    newer = world.joined(requestKey=OTHER_KEY)
    assert older.bootstrap_token != newer.bootstrap_token
    assert world.tokens() == [newer.bootstrap_token.reveal().split(".")[0]]


def test_a_machine_that_waits_is_told_for_what_and_so_is_the_operator(make_world: Callable[..., World]) -> None:
    world = make_world()
    answer = world.join()
    assert isinstance(answer, NotYet)
    assert answer.reason == "NotOrdered"
    condition = find_condition(world.server().status.conditions, "Joined")
    assert condition is not None
    assert condition.reason == "NotOrdered"
    assert "nobody has ordered a boot" in condition.message
    version = world.server().metadata.resource_version
    world.join()
    assert world.server().metadata.resource_version == version, "the same words are not written twice"


def test_a_machine_that_keeps_asking_is_written_down_now_and_then_only(world: World) -> None:
    world.joined()
    world.refused(requestKey=OTHER_KEY)
    version = world.server().metadata.resource_version
    world.refused(requestKey=OTHER_KEY)
    assert world.server().metadata.resource_version == version
    world.clock.offset += timedelta(seconds=16)
    world.refused(requestKey=OTHER_KEY)
    assert world.server().metadata.resource_version != version


def test_the_cards_in_a_server_are_looked_up_by_its_name() -> None:
    cards = [samples.server(f"{host}-dpu", spec=samples.spec(dpu=DPU(host_ref=host))) for host in ("a", "b")]
    find = find_dpus_in(FakeSource(samples.server("a"), *cards))
    assert (find("a"), find("a-dpu")) == (["a-dpu"], [])


def test_nobody_joins_while_more_cards_are_said_to_be_in_a_server_than_are_read(world: World) -> None:
    """One that is not read may be the one by which it boots."""
    cards = [f"card-{number}" for number in range(9)]
    with pytest.raises(Retryable, match=f"9 Servers are DPUs of server {world.name}.*hostRef"):
        world.service(find_dpus=lambda server: cards).join(world.request(), world.address)
    world.service(find_dpus=lambda server: cards[1:]).join(world.request(), world.address)
    world.joined()


def test_nobody_is_called_unknown_before_the_cache_of_servers_is_filled(world: World) -> None:
    servers = Informer(world.service_cluster, of(Server))
    service = world.service(find_server=find_server_in(servers))
    answer = service.join(world.request(), world.address)
    assert isinstance(answer, NotYet)
    assert (answer.reason, answer.retry_after_seconds) == ("NotSynced", 2.0)
    stop = threading.Event()
    servers.start(stop)
    try:
        assert servers.wait_for_sync(60)
        assert isinstance(service.join(world.request(), world.address), JoinConfiguration)
        stranger = service.join(world.request(macAddress="52:54:00:00:00:01"), world.address)
        assert isinstance(stranger, Denied)
        assert stranger.reason == "UnknownMachine"
    finally:
        stop.set()


def test_a_cache_that_names_a_server_of_another_mac_address_is_not_believed(world: World) -> None:
    service = world.service()
    service._find_server = lambda mac: world.name
    answer = service.join(world.request(macAddress="52:54:00:00:00:01"), world.address)
    assert isinstance(answer, Denied)
    assert answer.reason == "UnknownMachine"


def test_the_image_of_the_order_is_what_counts(world: World) -> None:
    world.admin.delete(of(Image), world.name)
    answer = world.join()
    assert isinstance(answer, NotYet)
    assert answer.reason == "NoImage"


def test_a_node_that_was_deleted_is_waited_for_and_made_again(world: World) -> None:
    world.admin.delete(NODES, world.name)
    answer = world.join()
    assert isinstance(answer, NotYet)
    assert answer.reason == "NodeNotPrepared"
    world.prepare_node()
    world.joined()


def test_a_verifier_challenges_and_then_proves(world: World) -> None:
    class Reverse:
        def verify(self, question: EvidenceQuestion) -> Proof:
            proof = question.request.evidence.get("proof")
            return Proven("a reversed nonce") if proof == "cba" else Challenge({"nonce": "abc"})

    world.admin.patch(of(NodePool), world.name, {"spec": {"attestation": "Required"}})
    service = world.service(verifiers={"Reverse": Reverse()})
    assert isinstance(service.join(world.request(), world.address), Denied)
    challenged = service.join(world.request(evidence={"type": "Reverse"}), world.address)
    assert challenged == Challenged({"nonce": "abc"})
    proven = service.join(world.request(evidence={"type": "Reverse", "proof": "cba"}), world.address)
    assert isinstance(proven, JoinConfiguration)


def test_an_api_server_that_is_away_is_retryable_and_nothing_is_refused(world: World) -> None:
    class FakeAwayCluster:
        def __getattr__(self, name: str) -> Any:
            def call(*_: Any, **__: Any) -> Any:
                raise Retryable("connection refused", after_seconds=2)

            return call

    with pytest.raises(Retryable):
        world.service(FakeAwayCluster()).join(world.request(), world.address)
    world.joined()


def test_the_join_service_may_not_read_a_secret(world: World) -> None:
    token_id = world.joined().bootstrap_token.reveal().split(".")[0]
    with pytest.raises(Refused, match="cannot get resource"):
        world.service_cluster.get(SECRETS, f"bootstrap-token-{token_id}", namespace="kube-system")
    with pytest.raises(Refused, match="cannot list resource"):
        world.service_cluster.list(SECRETS, namespace="kube-system")
