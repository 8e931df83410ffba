"""What only one machine can have is refused twice, with both places named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.inventory.duplicates import find_duplicates
from provisioner.inventory.lists.entries import ListEntry, Origin
from provisioner.inventory.register import supersede


def entry(name: str, line: int, kind: str = "Server", **spec: Any) -> ListEntry:
    mac = f"52:54:00:00:00:{line:02x}"
    return ListEntry(
        kind=kind, name=name, spec={"rackRef": "r01", "bootMACAddress": mac} | spec, origin=Origin("r.csv", line)
    )


def stored(name: str, kind: str = "Server", status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    body = {"kind": kind, "metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"rackRef": "r02"} | spec}
    return body | ({"status": status} if status else {})


UUID, SWAPPED_UUID = "4c4c4544-0042-4410-8056-b4c04f564432", "44454c4c-4200-1044-8056-b4c04f564432"
ONLY_ONE = [
    (
        "MAC address",
        {"bootMACAddress": "52:54:00:aa:00:01"},
        {"bootMACAddress": "52:54:00:aa:00:01"},
        "52:54:00:aa:00:01",
    ),
    (
        "MAC address",
        {"bootMACAddress": "52:54:00:aa:00:01"},
        {"interfaces": [{"name": "b", "macAddress": "52:54:00:aa:00:01"}]},
        "52:54:00:aa:00:01",
    ),
    (
        "MAC address",
        {"bootMACAddress": "52:54:00:aa:00:01"},
        {"bmc": {"address": "https://b", "macAddress": "52:54:00:aa:00:01"}},
        "52:54:00:aa:00:01",
    ),
    ("serial number", {"serialNumber": "abc1"}, {"serialNumber": "ABC1"}, "ABC1"),
    ("system UUID", {"systemUUID": UUID}, {"systemUUID": UUID.upper()}, f"{SWAPPED_UUID} (in either byte order)"),
    ("system UUID", {"systemUUID": UUID}, {"systemUUID": SWAPPED_UUID}, f"{SWAPPED_UUID} (in either byte order)"),
    ("address", {"bootAddress": "10.80.0.9"}, {"bootAddress": "10.80.0.9"}, "10.80.0.9"),
    ("BMC address", {"bmc": {"address": "https://B"}}, {"bmc": {"address": "https://b/"}}, "b"),
    ("BMC address", {"bmc": {"address": "https://b"}}, {"bmc": {"address": "https://b:443/redfish/v1"}}, "b"),
    ("BMC address", {"bmc": {"address": "http://b."}}, {"bmc": {"address": "https://b:80"}}, "b:80"),
    ("BMC address", {"bmc": {"address": "ipmi://B"}}, {"bmc": {"address": "https://b"}}, "b"),
    ("BMC address", {"bmc": {"address": "b:623"}}, {"bmc": {"address": "https://b/redfish/v1"}}, "b"),
    ("BMC address", {"bmc": {"address": "10.90.0.1"}}, {"bmc": {"address": "ipmi://10.90.0.1:623"}}, "10.90.0.1"),
    ("BMC address", {"bmc": {"address": "ipmi://[FD00::1]"}}, {"bmc": {"address": "https://[fd00::1]"}}, "[fd00::1]"),
    ("BMC address", {"bmc": {"address": "ipmi://b:6230"}}, {"bmc": {"address": "b:6230"}}, "b:6230"),
    (
        "BMC address",
        {"bmc": {"address": "ipmi://b"}},
        {"bmc": {"address": "https://b", "systemID": "1"}},
        "b",
    ),
    (
        "BMC address",
        {"bmc": {"address": "https://[fd00::0:1]"}},
        {"bmc": {"address": "https://[FD00::1]:443"}},
        "[fd00::1]",
    ),
    (
        "BMC address",
        {"bmc": {"address": "https://b", "systemID": "1"}},
        {"bmc": {"address": "https://b:443", "systemID": "1"}},
        "b (system 1)",
    ),
    ("BMC address", {"bmc": {"address": "https://b"}}, {"bmc": {"address": "https://b", "systemID": "1"}}, "b"),
    ("BMC address", {"bmc": {"address": "https://b", "systemID": "1"}}, {"bmc": {"address": "https://b/"}}, "b"),
    ("position", {"position": "u07"}, {"position": "u07"}, "u07 of rack r01"),
]


def of_nodes(what: str, value: str) -> str:
    """What is said of the nodes of one chassis, beside the remedy for others."""
    if what == "BMC address" and "(system" not in value:
        return "; where one BMC serves several nodes by Redfish: add a column BMC System ID (spec.bmc.systemID)"
    if what == "position":
        return (
            "; if they are nodes of one chassis: add a column Chassis Serial Number (annotation "
            "provisioner.dev/chassis-serial-number), or BMC System ID where they share a BMC"
        )
    if what == "serial number":
        return (
            "; if it is that of a chassis with several nodes: --column chassis-serial-number=HEADER, and a column "
            "Node Serial Number for their own"
        )
    return ""


@pytest.mark.parametrize(("what", "one", "two", "value"), ONLY_ONE)
def test_a_duplicate_within_the_file_names_both_lines(what: str, one: dict, two: dict, value: str) -> None:  # type: ignore[type-arg]
    mistakes, _ = find_duplicates([entry("a", 2, **one), entry("c", 3), entry("b", 7, **two)], [])
    assert [str(mistake) for mistake in mistakes] == [
        f"r.csv:7: {what} {value} of Server a (r.csv:2) is also that of Server b (r.csv:7), "
        f"expected one machine to have it; correct the {what} of one of them{of_nodes(what, value)}"
    ]


@pytest.mark.parametrize(("what", "one", "two", "value"), ONLY_ONE)
def test_a_duplicate_of_an_object_in_the_cluster_names_it(what: str, one: dict, two: dict, value: str) -> None:  # type: ignore[type-arg]
    existing = [stored("old", rackRef="r01", **{"bootMACAddress": "52:54:00:bb:00:01"} | two)]
    (mistake,) = find_duplicates([entry("a", 2, **one)], existing).mistakes
    assert mistake.observed == f"{what} {value} of Server a (r.csv:2) is also that of Server old (in the cluster)"
    assert (
        mistake.remedy
        == f"correct the {what}, or if Server old is gone: kubectl delete server/old{of_nodes(what, value)}"
    )


def test_an_allocated_address_is_taken() -> None:
    existing = [stored("old", status={"address": "10.80.0.9"}, bootMACAddress="52:54:00:bb:00:01")]
    (mistake,) = find_duplicates([entry("a", 2, bootAddress="10.80.0.9")], existing).mistakes
    assert "address 10.80.0.9 of Server a (r.csv:2) is also that of Server old" in mistake.observed


def test_an_object_that_the_file_names_counts_as_it_will_be() -> None:
    existing = [
        stored("a", bootMACAddress="52:54:00:00:00:03", serialNumber="A"),
        stored("b", bootMACAddress="52:54:00:00:00:02", serialNumber="B"),
    ]
    assert find_duplicates([entry("a", 2), entry("b", 3)], existing) == ((), ())
    (mistake,) = find_duplicates([entry("a", 2), entry("b", 3, serialNumber="A")], existing).mistakes
    assert "serial number A of Server a (r.csv:2) is also that of Server b (r.csv:3)" in mistake.observed


def test_a_name_that_occurs_twice_is_refused() -> None:
    (mistake,) = find_duplicates([entry("a", 2), entry("a", 3)], []).mistakes
    assert str(mistake).startswith("r.csv:3: Server a occurs again; it is on r.csv:2 already")


@pytest.mark.parametrize(
    ("spec", "what"), [({"position": "u12"}, "position"), ({"serialNumber": "U12"}, "serial number")]
)
def test_a_name_that_was_made_of_what_nodes_share_is_to_be_given_in_a_column(spec: dict[str, str], what: str) -> None:
    (mistake,) = find_duplicates([entry("r01-u12", line, **spec) for line in (2, 3)], []).mistakes
    assert mistake.remedy == (
        f"correct the {what} of one of them, or remove it; for the nodes of one chassis add a column Name"
    )


def test_three_claimants_are_all_named() -> None:
    (mistake,) = find_duplicates([entry(name, line, position="u1") for line, name in enumerate("abc", 2)], []).mistakes
    assert "of Server a (r.csv:2) is also that of Server b (r.csv:3), Server c (r.csv:4)" in mistake.observed


def test_what_may_be_shared_is_shared() -> None:
    chassis = {"address": "https://bmc"}
    assert find_duplicates(
        [
            entry("a", 2, position="u1", bmc=chassis | {"systemID": "1"}),
            entry("b", 3, position="u1", rackRef="r09", bmc=chassis | {"systemID": "2"}),
            entry("d", 6, bmc={"address": "https://bmc:8443"}),
            entry("e", 7, bmc={"address": "http://bmc"}),
            entry("a-dpu", 4, dpu={"hostRef": "r01-u01"}, serialNumber="X"),
            entry("c", 5, serialNumber="X"),
        ],
        [stored("r09", kind="Rack", subnets=[])],
    ) == ((), ())


CHASSIS = "provisioner.dev/chassis-serial-number"


@pytest.mark.parametrize(
    ("chassis", "is_noted"),
    [
        (("C1", "C1", "c1"), False),
        (("C1", "C1", "C2"), True),
        (("C1", "C1", None), True),
        (("Default string", "Default string", "Default string"), True),
    ],
)
def test_servers_at_one_position_are_noted_unless_they_are_nodes_of_one_chassis(
    chassis: tuple[str | None, ...], *, is_noted: bool
) -> None:
    one, two, three = ({CHASSIS: serial} if serial else {} for serial in chassis)
    entries = [
        replace(entry("a", 2, position="u1", serialNumber="A"), annotations=one),
        replace(entry("b", 3, position="u1", serialNumber="B"), annotations=two),
    ]
    old = stored("c", rackRef="r01", position="u1", serialNumber="C")
    old["metadata"]["annotations"] = three
    mistakes, notes = find_duplicates(entries, [old])
    assert mistakes == ()
    assert [note.partition(": ")[0] for note in notes] == (
        ["Server a (r.csv:2), Server b (r.csv:3) and Server c (in the cluster) are at position u1 of rack r01"]
        if is_noted
        else []
    )


@pytest.mark.parametrize("chassis", ["C1", ""])
def test_servers_that_nothing_tells_apart_share_a_position_in_one_chassis_alone(chassis: str) -> None:
    entries = [
        replace(entry(name, line, position="u1"), annotations={CHASSIS: chassis}) for line, name in enumerate("ab", 2)
    ]
    mistakes, notes = find_duplicates(entries, [])
    assert ([mistake.origin.line for mistake in mistakes], notes) == ([] if chassis else [3], ())


def test_a_server_that_a_file_names_stays_in_its_chassis() -> None:
    old = stored("a", rackRef="r01", position="u1")
    old["metadata"]["annotations"] = {CHASSIS: "C1"}
    entries = [entry("a", 2), replace(entry("b", 3, position="u1"), annotations={CHASSIS: "C1"})]
    assert find_duplicates(entries, [old]) == ((), ())


def test_two_systems_in_the_cluster_are_not_reported_for_a_file_that_names_a_third() -> None:
    existing = [stored(name, bmc={"address": "https://b", "systemID": "1"}) for name in ("old", "older")]
    assert find_duplicates([entry("a", 2, bmc={"address": "https://b", "systemID": "2"})], existing) == ((), ())


def test_a_machine_that_was_switched_on_before_it_was_registered_is_superseded() -> None:
    unknown = stored("unknown-525400000002", bootMACAddress="52:54:00:00:00:02", acceptance="Pending")
    others = [
        stored("unknown-525400000009", bootMACAddress="52:54:00:00:00:09", acceptance="Pending"),
        stored("r02-u02", bootMACAddress="52:54:00:00:00:0a", acceptance="Pending"),
    ]
    entries = [entry("a", 2)]
    assert find_duplicates(entries, [unknown, *others]) == ((), ())
    (step,) = supersede(entries, [unknown, *others])
    assert (step.action, step.name, step.uid) == ("delete", "unknown-525400000002", "uid-unknown-525400000002")
    assert step.reason == "it is Server a now"


def test_a_stranger_that_was_accepted_is_a_duplicate_like_any_other() -> None:
    accepted = stored("unknown-525400000002", bootMACAddress="52:54:00:00:00:02", acceptance="Accepted")
    assert len(find_duplicates([entry("a", 2)], [accepted]).mistakes) == 1
    assert supersede([entry("a", 2)], [accepted]) == ()
