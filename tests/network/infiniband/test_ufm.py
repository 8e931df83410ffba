"""UFM's REST API, spoken to a fake of its documented shape: what is told, what is believed, what is cut off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.values import Secret
from provisioner.api.network.infiniband_network import InfiniBandNetworkSpec, Partition
from provisioner.api.network.network_pool import PKeyRange
from provisioner.network.infiniband.model.verify import compare
from provisioner.network.infiniband.ufm import rest as rest_module
from provisioner.network.infiniband.ufm.controller import carry_out
from provisioner.network.infiniband.ufm.plan import UfmStep, knows, plan_steps, view_of
from provisioner.network.infiniband.ufm.rest import UfmAccess, UfmFailed, UfmNoAnswer, UfmPartition, UfmRest
from tests.network.infiniband.fake_ufm import PASSWORD, USERNAME, FakeUfm
from tests.network.infiniband.site import guid, partition

BLUE, RED, STORAGE = 0x101, 0x102, 0x42


def wanted(*partitions: Partition) -> InfiniBandNetworkSpec:
    return InfiniBandNetworkSpec(
        manager="UFM", pkey_ranges=(PKeyRange(first=0x100, last=0x1FF),), partitions=partitions
    )


@pytest.fixture
def ufm(tmp_path: Path) -> Iterator[FakeUfm]:
    with FakeUfm(tmp_path) as fake:
        yield fake


def connect(ufm: FakeUfm, **changes: Any) -> UfmRest:
    given = {
        "url": ufm.url,
        "username": USERNAME,
        "password": Secret(PASSWORD),
        "source": "provisioner-fabrics/ufm",
        "certificate": ufm.certificate,
    }
    return UfmRest(UfmAccess(**{**given, **changes}))


def settle(ufm: FakeUfm, spec: InfiniBandNetworkSpec) -> tuple[UfmStep, ...]:
    rest = connect(ufm)
    steps = plan_steps(spec, rest.partitions())
    for step in steps:
        carry_out(rest, step)
    return steps


def test_two_tenants_get_a_partition_each_and_the_second_time_nothing_is_told(ufm: FakeUfm) -> None:
    spec = wanted(partition(BLUE, guid(1), guid(2)), partition(RED, guid(3), vpc_name="red/main", ipoib=True))
    assert len(settle(ufm, spec)) == 2
    assert ufm.members(BLUE) == {guid(1): "full", guid(2): "full"}
    assert ufm.members(RED) == {guid(3): "full"}
    posts = [body for method, _, body in ufm.requests if method == "POST"]
    assert posts[1] == {
        "pkey": "0x102",
        "guids": [guid(3).removeprefix("0x")],
        "membership": "full",
        "index0": False,
        "ip_over_ib": True,
    }
    findings = compare(spec, view_of(connect(ufm).partitions()))
    assert (findings.agrees, findings.default_limited) == (True, "Yes")
    assert settle(ufm, spec) == ()


def test_a_port_that_moves_is_out_of_the_one_before_it_is_in_the_other(ufm: FakeUfm) -> None:
    settle(ufm, wanted(partition(BLUE, guid(1), guid(2)), partition(RED, guid(3))))
    ufm.requests.clear()
    settle(ufm, wanted(partition(BLUE, guid(1)), partition(RED, guid(2), guid(3))))
    changes = [(method, path) for method, path, _ in ufm.requests if method != "GET"]
    gone = f"/ufmRest/resources/pkeys/0x101/guids/{guid(2).removeprefix('0x')}"
    assert changes == [("DELETE", gone), ("POST", "/ufmRest/resources/pkeys")]
    assert ufm.members(RED) == {guid(2): "full", guid(3): "full"}


def test_a_partition_that_nobody_wants_goes_and_somebody_elses_stays(ufm: FakeUfm) -> None:
    ufm.put(STORAGE, guid(9))
    settle(ufm, wanted(partition(BLUE, guid(1))))
    settle(ufm, wanted())
    assert (ufm.members(BLUE), ufm.members(STORAGE)) == ({}, {guid(9): "full"})
    assert knows(connect(ufm).partitions()) == (STORAGE,)


def test_a_tenants_port_in_somebody_elses_partition_is_told_of() -> None:
    found = [
        UfmPartition(pkey=BLUE, members={guid(1): "full"}),
        UfmPartition(pkey=STORAGE, members={guid(1): "full", guid(9): "full"}),
    ]
    spec = wanted(partition(BLUE, guid(1)))
    findings = compare(spec, view_of(found))
    assert (plan_steps(spec, found), findings.surplus) == ((), ((guid(1), 0x8000 | STORAGE),))


def test_a_limited_member_of_a_tenants_partition_is_made_a_full_one(ufm: FakeUfm) -> None:
    ufm.put(BLUE, guid(1), membership="limited")
    settle(ufm, wanted(partition(BLUE, guid(1))))
    assert ufm.members(BLUE) == {guid(1): "full"}


def test_what_ufm_confirms_and_does_not_keep_is_not_believed(ufm: FakeUfm) -> None:
    ufm.forgets_members = True
    spec = wanted(partition(BLUE, guid(1)))
    settle(ufm, spec)
    assert compare(spec, view_of(connect(ufm).partitions())).lacking == ((guid(1), 0x8000 | BLUE),)


@pytest.mark.parametrize(("said", "limited"), [("limited", "Yes"), ("full", "No"), (None, "Unknown")])
def test_what_the_default_partition_makes_of_all_ports_is_read(tmp_path: Path, said: str | None, limited: str) -> None:
    with FakeUfm(tmp_path, default_membership=said) as ufm:
        assert compare(wanted(), view_of(connect(ufm).partitions())).default_limited == limited


def test_a_tenants_port_that_is_a_full_member_of_the_default_partition_is_found_though_ufm_says_limited(
    ufm: FakeUfm,
) -> None:
    ufm.put(0x7FFF, guid(1), guid(8))
    settle(ufm, spec := wanted(partition(BLUE, guid(1))))
    findings = compare(spec, view_of(connect(ufm).partitions()))
    assert (findings.default_limited, findings.full_by_default) == ("No", (guid(1),))


def test_many_ports_are_told_in_several_requests(ufm: FakeUfm) -> None:
    many = [guid(number) for number in range(450)]
    settle(ufm, wanted(partition(BLUE, *many)))
    assert len(ufm.members(BLUE)) == 450
    ufm.requests.clear()
    settle(ufm, wanted(partition(BLUE, many[0])))
    assert [method for method, _, _ in ufm.requests] == ["GET", "DELETE", "DELETE", "DELETE"]
    assert max(len(path) for _, path, _ in ufm.requests) < 4000


def test_a_partition_that_is_gone_already_is_deleted_without_complaint(ufm: FakeUfm) -> None:
    connect(ufm).delete(BLUE)
    assert ufm.requests


def test_a_password_that_ufm_refuses_is_not_told_and_the_secret_is_named(ufm: FakeUfm) -> None:
    ufm.password = "another"
    with pytest.raises(UfmFailed, match="Secret provisioner-fabrics/ufm") as failed:
        connect(ufm).partitions()
    assert PASSWORD not in str(failed.value)
    assert PASSWORD not in repr(UfmAccess(url=ufm.url, username="a", password=Secret(PASSWORD), source="s"))


def test_a_certificate_of_somebody_else_is_not_believed(ufm: FakeUfm, tmp_path: Path) -> None:
    with FakeUfm(tmp_path / "other") as other, pytest.raises(UfmNoAnswer, match="certificate was not accepted"):
        connect(ufm, certificate=other.certificate).partitions()
    assert ufm.requests == []


@pytest.mark.parametrize(
    "body",
    [
        b"<html>login</html>",
        b"[]",
        b'{"0x1": []}',
        b'{"1": {}}',
        b'{"0x1": {"guids": {}}}',
        b'{"0x1": {"guids": [{"guid": "x", "membership": "full"}]}}',
        b'{"0x1": {"guids": [{"guid": "506b4b0300a1b200", "membership": "both"}]}}',
        b"[" * 100_000,
    ],
)
def test_an_answer_that_is_none_is_a_failure_and_no_empty_fabric(ufm: FakeUfm, body: bytes) -> None:
    ufm.answer_instead = (200, body)
    with pytest.raises(UfmNoAnswer, match="cannot be read"):
        connect(ufm).partitions()


def test_an_answer_without_end_is_cut_off(ufm: FakeUfm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_module, "ANSWER_BYTES", 1000)
    ufm.answer_instead = (200, b" " * 1_000_000)
    with pytest.raises(UfmNoAnswer):
        connect(ufm).partitions()


def test_what_ufm_refuses_is_said_in_its_words_without_what_would_garble_a_screen(ufm: FakeUfm) -> None:
    ufm.answer_instead = (400, b"no \x1b[31m such thing" + b"x" * 1000)
    with pytest.raises(UfmFailed, match="HTTP 400") as failed:
        connect(ufm).delete(BLUE)
    assert not isinstance(failed.value, UfmNoAnswer)
    assert "\x1b" not in str(failed.value)
    assert len(str(failed.value)) < 400
