"""A BMC has few sessions: at no time two are ours, and none is left by a connection that was closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lab.bmc import resources
from provisioner.api.machinery.errors import Retryable
from provisioner.api.servers.server import BMC
from provisioner.cluster.resources import BMC_SECRETS
from provisioner.power.bmc.pool import BmcPool
from provisioner.power.bmc.power_controller import BmcAccess, BmcRefused, BmcUnreachable
from provisioner.power.bmc.redfish import RedfishPower
from tests.cluster.fake_cluster import FakeCluster
from tests.lab.fake_machine import FakeServer, fake_server
from tests.power.test_redfish import access_to


class CountedSessions(dict[str, str]):
    """The sessions of a BMC, and how many there were at most."""

    most = 0
    opened = 0

    def __init__(self) -> None:
        super().__init__()
        self.at_login: Callable[[], None] = lambda: None
        self.at_request: Callable[[], None] = lambda: None

    def __setitem__(self, token: str, identity: str) -> None:
        super().__setitem__(token, identity)
        self.opened += 1
        self.most = max(self.most, len(self))
        self.at_login()

    def __contains__(self, token: object) -> bool:
        found = super().__contains__(token)
        self.at_request()
        return found


@pytest.fixture
def sessions() -> CountedSessions:
    return CountedSessions()


@pytest.fixture
def server(tmp_path: Path, sessions: CountedSessions) -> Iterator[FakeServer]:
    with fake_server(tmp_path / "bmc") as made:
        made.endpoint.sessions = sessions
        yield made
    assert (len(sessions), sessions.most) == (0, 1)


@pytest.fixture
def power(server: FakeServer) -> Iterator[RedfishPower]:
    with closing(RedfishPower(access_to(server))) as made:
        yield made


def test_a_token_refused_once_costs_the_session_it_stood_for(
    server: FakeServer, power: RedfishPower, sessions: CountedSessions
) -> None:
    power.get_power_state()
    server.endpoint.faults.tokens_refused = 1
    assert power.get_power_state() == "Off"
    assert (sessions.opened, len(sessions)) == (2, 1)


def test_a_bmc_that_refuses_to_end_a_session_by_its_own_token_is_asked_again_by_the_next(
    server: FakeServer, power: RedfishPower, sessions: CountedSessions
) -> None:
    power.get_power_state()
    server.endpoint.faults.tokens_refused = 2  # the request, and the end of the session
    assert power.get_power_state() == "Off"
    assert (sessions.opened, len(sessions)) == (2, 1)
    sessions.most = 1  # for a moment there were two: without a session that it accepts nobody ends the other


def test_a_session_that_the_bmc_forgot_is_not_opened_again_to_be_closed(
    power: RedfishPower, sessions: CountedSessions
) -> None:
    power.get_power_state()
    sessions.clear()
    power.close()
    assert sessions.opened == 1


def test_a_connection_that_fails_after_the_login_leaves_no_session(
    server: FakeServer, sessions: CountedSessions
) -> None:
    with closing(RedfishPower(replace(access_to(server), system_id="Blade7"))) as power:
        for _ in range(3):
            with pytest.raises(BmcRefused, match="has no system 'Blade7'"):
                power.get_power_state()
    assert sessions.opened == 3


@pytest.mark.parametrize("lost", [["GET"], ["POST"], ["POST", "DELETE"]])
def test_a_login_whose_answer_got_lost_leaves_no_session(
    server: FakeServer, power: RedfishPower, sessions: CountedSessions, lost: list[str]
) -> None:
    server.endpoint.faults.answers_lost += lost
    for _ in lost:
        with pytest.raises(BmcUnreachable, match="does not answer"):
            power.get_power_state()
    assert power.get_power_state() == "Off"
    assert len(sessions) == 1


def test_a_login_whose_answer_got_lost_leaves_no_session_when_nobody_calls_again(
    server: FakeServer, power: RedfishPower, sessions: CountedSessions
) -> None:
    server.endpoint.faults.answers_lost += ["POST"]
    with pytest.raises(BmcUnreachable, match="does not answer"):
        power.get_power_state()
    power.close()
    assert (sessions.opened, len(sessions)) == (1, 0)


def test_after_a_lost_login_the_sessions_of_other_users_are_left_to_them(
    server: FakeServer, power: RedfishPower, sessions: CountedSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_ours = resources.session
    monkeypatch.setattr(resources, "session", lambda id_, user: as_ours(id_, "admin" if id_ == "theirs" else user))
    sessions["their token"] = "theirs"
    server.endpoint.faults.answers_lost += ["POST"]
    with pytest.raises(BmcUnreachable):
        power.get_power_state()
    assert len(sessions) == 2
    power.get_power_state()
    power.close()
    assert sessions.pop("their token") == "theirs"
    assert (len(sessions), sessions.opened, sessions.most) == (0, 3, 2)
    sessions.most = 1


@pytest.mark.parametrize("losses", [1, 2])
def test_the_end_of_a_session_whose_answer_got_lost_is_asked_for_again_before_another_is_opened(
    server: FakeServer, power: RedfishPower, sessions: CountedSessions, losses: int
) -> None:
    power.get_power_state()
    server.endpoint.faults.tokens_refused = 1
    server.endpoint.faults.answers_lost += ["DELETE"] * losses
    for _ in range(losses):
        with pytest.raises(BmcUnreachable, match="does not answer"):
            power.get_power_state()
    assert sessions.opened == 1
    assert power.get_power_state() == "Off"
    assert sessions.opened == 2


def test_a_busy_bmc_keeps_the_session_and_gets_no_second_one(
    server: FakeServer, power: RedfishPower, sessions: CountedSessions
) -> None:
    power.get_power_state()
    server.endpoint.faults.unavailable = True
    with pytest.raises(BmcUnreachable, match="busy"):
        power.get_power_state()
    server.endpoint.faults.unavailable = False
    assert power.get_power_state() == "Off"
    assert sessions.opened == 1


@pytest.mark.parametrize("moment", ["at_login", "at_request"])
def test_a_connection_closed_in_the_midst_of_a_call_ends_its_session_after_it(
    power: RedfishPower, sessions: CountedSessions, moment: str
) -> None:
    """As when a controller stops: the one that closes is not the one that calls."""
    setattr(sessions, moment, power.close)  # by the thread of the BMC, which has not answered then
    assert power.get_power_state() == "Off"
    assert (sessions.opened, len(sessions)) == (1, 0)
    with pytest.raises(Retryable, match="was closed"):
        power.get_power_state()
    assert sessions.opened == 1


def test_a_pool_that_was_closed_connects_to_nothing(server: FakeServer) -> None:
    access, asked = access_to(server), list[BmcAccess]()
    cluster = FakeCluster()
    data = {"username": "cHJvdmlzaW9uZXI=", "password": "Y29ycmVjdCBob3JzZQ=="}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bmc", "namespace": BMC_SECRETS}, "data": data}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BMC_SECRETS}}, manager="test")
    cluster.apply(body, manager="test")

    def connect(access: BmcAccess) -> RedfishPower:
        asked.append(access)
        return RedfishPower(access)

    place = BMC(address=access.address, credentials_name="bmc", certificate=access.certificate)
    pool = BmcPool(cluster, clock=lambda: 0.0, connect=connect)  # type: ignore[arg-type]
    assert pool.get("r01-u01", place).get_power_state() == "Off"
    pool.close()
    with pytest.raises(Retryable, match="this controller ends"):
        pool.get("r01-u01", place)
    assert len(asked) == 1
