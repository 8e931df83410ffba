"""The list of certificates that count: what it says of each Server, and what becomes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api.machinery.meta import rfc3339
from provisioner.join.certificates.approve import MAX_EXPIRATION_SECONDS
from provisioner.join.credentials.listed import (
    ALL_SHARDS,
    PIN,
    REMOVED_ANNOTATION,
    REMOVED_SECONDS,
    SHARDS,
    USE,
    ListedServer,
    next_end,
    read_entries,
    role_of,
    says_the_same,
    settle,
    shard_of,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = ("X509SHA256=" + digit * 64 for digit in "ab")
JOINED = {"tokenID": "abcdef", "certificateTokenID": "abcdef", "credentials": [OLD]}


def server(name: str = "r01-u01", join: dict[str, Any] | None = None, acceptance: str = "Accepted") -> dict[str, Any]:
    status = {"join": join} if join is not None else {}
    return {"metadata": {"name": name}, "spec": {"acceptance": acceptance}, "status": status}


@pytest.mark.parametrize(
    ("what", "body", "listed"),
    [
        ("has never been handed anything", server(), None),
        ("was handed its first token", server(join={"tokenID": "abcdef"}), None),
        ("has joined, unsigned", server(join={**JOINED, "credentials": []}), ListedServer()),
        ("has joined", server(join=JOINED), ListedServer(credentials=(OLD,))),
        ("has renewed", server(join={**JOINED, "credentials": [OLD, NEW]}), ListedServer(credentials=(OLD, NEW))),
        (
            "was handed the token of its next boot",
            server(join={**JOINED, "tokenID": "bcdefg"}),
            ListedServer(credentials=(OLD,)),
        ),
        ("is Pending again", server(join=JOINED, acceptance="Pending"), ListedServer(credentials=(OLD,))),
        ("is Rejected", server(join=JOINED, acceptance="Rejected"), ListedServer()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_list_says_of_a_server_that(what: str, body: dict[str, Any], listed: ListedServer | None) -> None:
    assert settle({}, [body], NOW) == ({"r01-u01": listed} if listed is not None else {})


def test_a_role_says_what_was_written_into_it_and_no_rule_is_one_of_all_names() -> None:
    entries = {
        "r01-u01": ListedServer(credentials=(NEW, OLD)),
        "r01-u02": ListedServer(),
        "r01-u03": ListedServer(credentials=(OLD,), removed=rfc3339(NOW)),
    }
    role = role_of("servers-00", entries)
    assert {
        name: ListedServer(credentials=tuple(sorted(entry.credentials)), removed=entry.removed)
        for name, entry in entries.items()
    } == read_entries(role)
    assert [rule["verbs"] for rule in role["rules"]] == [[PIN], [USE]]
    assert role_of("servers-00", {})["rules"] == []
    without = role_of("servers-00", {"r01-u02": ListedServer()})["rules"]
    assert [(rule["verbs"], rule["resourceNames"]) for rule in without] == [([PIN], ["r01-u02"])]


def test_a_name_that_begins_like_another_gets_none_of_its_certificates() -> None:
    entries = {"r01-u0": ListedServer(), "r01-u01": ListedServer(credentials=(OLD,))}
    assert read_entries(role_of("servers-00", entries))["r01-u0"] == ListedServer()


def test_a_server_that_is_gone_stays_as_it_was_for_as_long_as_a_certificate_may_last() -> None:
    before = {"r01-u01": ListedServer(credentials=(OLD,))}
    gone = settle(before, [], NOW)
    assert gone == {"r01-u01": ListedServer(credentials=(OLD,), removed=rfc3339(NOW))}
    assert next_end(gone, NOW) == REMOVED_SECONDS
    assert REMOVED_SECONDS > MAX_EXPIRATION_SECONDS
    later = NOW + timedelta(seconds=REMOVED_SECONDS - 1)
    assert settle(gone, [], later) == gone
    assert settle(gone, [], later + timedelta(seconds=2)) == {}
    assert next_end(before, NOW) is None


def test_a_server_of_that_name_that_joins_is_listed_as_it_is_and_one_that_has_not_changes_nothing() -> None:
    gone = settle({"r01-u01": ListedServer(credentials=(OLD,))}, [], NOW)
    assert settle(gone, [server()], NOW) == gone
    joined = server(join={**JOINED, "credentials": [NEW]})
    assert settle(gone, [joined], NOW) == {"r01-u01": ListedServer(credentials=(NEW,))}


@pytest.mark.parametrize("removed", ["never", "9999-01-01T00:00:00Z", "2026-01-01T00:00:00"])
def test_a_time_that_nobody_of_ours_has_written_keeps_nothing_for_ever(removed: str) -> None:
    gone = {"r01-u01": ListedServer(removed=removed)}
    end = next_end(gone, NOW)
    assert end is not None
    assert end <= REMOVED_SECONDS


def test_what_others_write_beside_it_is_no_difference_and_a_rule_of_theirs_is() -> None:
    entries = {"r01-u01": ListedServer(credentials=(OLD,), removed=rfc3339(NOW))}
    wanted = role_of("servers-00", entries)
    assert says_the_same(wanted, wanted)
    noted = {**wanted, "metadata": {"annotations": {"example.com/a": "b", **wanted["metadata"]["annotations"]}}}
    assert says_the_same(noted, wanted)
    assert not says_the_same({**wanted, "metadata": {}}, wanted)
    assert not says_the_same({**wanted, "rules": [*wanted["rules"], {"verbs": ["use"]}]}, wanted)
    assert REMOVED_ANNOTATION + "r01-u01" in wanted["metadata"]["annotations"]


def test_servers_are_spread_over_all_shards() -> None:
    found = [shard_of(f"r{rack:02}-u{unit:02}") for rack in range(100) for unit in range(40)]
    assert set(found) == ALL_SHARDS
    assert len(ALL_SHARDS) == SHARDS
    assert max(found.count(shard) for shard in set(found)) < 2 * len(found) / SHARDS
