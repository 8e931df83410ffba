"""The partitions file: the same for the same network, read back as it was meant, and recognised."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.errors import Refused
from provisioner.api.network.infiniband_network import InfiniBandNetworkSpec, Partition
from provisioner.network.infiniband.opensm.agent import decide_file
from provisioner.network.infiniband.opensm.partitions_file import file_state, render
from tests.network.infiniband.site import guid, network, partition

LINE_CHARACTERS = 4096
"""OpenSM reads no more of a line. Source: opensm(8)."""

SPEC = network(
    partition(0x101, guid(1), guid(2)),
    partition(0x102, guid(3), vpc_name="red/main", ipoib=True),
    sharedGuids=[guid(9)],
).spec


def test_the_file_of_two_tenants() -> None:
    head, _, body = render("default", SPEC).partition("\n")
    assert head.startswith("# Written by `provisioner infiniband` for fabric default; changes are undone. sha256:")
    assert body == (
        "Default=0x7fff : ALL=limited, SELF=full, 0x506b4b0300a1b209=full ;\n"
        "# blue/main\n"
        "vpc-0101=0x0101, defmember=full : 0x506b4b0300a1b201, 0x506b4b0300a1b202 ;\n"
        "# red/main\n"
        "vpc-0102=0x0102, ipoib, defmember=full : 0x506b4b0300a1b203 ;\n"
    )


guids = st.integers(1, 2**64 - 2).map(lambda number: f"0x{number:016x}")
specs = st.dictionaries(
    st.integers(1, 0x7FFE), st.tuples(st.booleans(), st.sets(guids, min_size=1, max_size=200)), max_size=5
).map(
    lambda found: InfiniBandNetworkSpec(
        manager="OpenSM",
        partitions=tuple(
            Partition(pkey=pkey, vpc="blue/main", ip_over_ib=ipoib, guids=tuple(sorted(members)))
            for pkey, (ipoib, members) in sorted(found.items())
        ),
    )
)


def read_partitions(text: str) -> dict[int, tuple[bool, dict[str, str]]]:
    """By P_Key, whether IP goes over it and its members, as OpenSM reads it: definitions of one P_Key are merged."""
    found: dict[int, tuple[bool, dict[str, str]]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        said = re.fullmatch(r"[^=#]+=0x([0-9a-f]{4})(, ipoib)?(, defmember=full)? : (.+) ;", line)
        assert said is not None, line
        for who, _, membership in (each.partition("=") for each in said[4].split(", ")):
            _, members = found.setdefault(int(said[1], 16), (said[2] is not None, {}))
            members[who] = membership or ("full" if said[3] else "limited")
    return found


@given(specs)
def test_what_is_written_is_read_back_as_it_was_meant(spec: InfiniBandNetworkSpec) -> None:
    text = render("default", spec)
    read = read_partitions(text)
    assert read.pop(0x7FFF) == (False, {"ALL": "limited", "SELF": "full"})
    assert read == {each.pkey: (each.ip_over_ib, dict.fromkeys(each.guids, "full")) for each in spec.partitions}
    assert max(map(len, text.splitlines())) < LINE_CHARACTERS
    assert text == render("default", spec)


@pytest.mark.parametrize(
    "bad",
    [
        Partition(pkey=0x101, vpc="blue/main\nx=0x0102 : ALL=full ;", guids=(guid(1),)),
        Partition(pkey=0x101, vpc="blue/main", guids=("ALL",)),
        Partition(pkey=0x101, vpc="blue/main", guids=(f"{guid(1)} ; x=0x0102 : ALL",)),
        Partition(pkey=0x7FFF, vpc="blue/main", guids=(guid(1),)),
        Partition(pkey=0, vpc="blue/main", guids=(guid(1),)),
    ],
)
def test_what_would_mean_something_else_in_the_file_is_refused(bad: Partition) -> None:
    with pytest.raises(Refused):
        render("default", InfiniBandNetworkSpec(manager="OpenSM", partitions=(bad,)))


def test_whose_a_file_is_follows_from_its_first_line() -> None:
    text = render("default", SPEC)
    assert file_state("default", None) == "Absent"
    assert file_state("default", text) == "Intact"
    assert file_state("default", text.replace("ALL=limited", "ALL=full")) == "Changed"
    assert file_state("default", text + "storage=0x0042 : ALL=full ;\n") == "Changed"
    assert file_state("other", text) == "Foreign"
    assert file_state("default", "Default=0x7fff : ALL=full ;\n") == "Foreign"
    assert file_state("default", "") == "Foreign"


@pytest.mark.parametrize(
    ("text", "adopt", "step"),
    [
        (None, False, "Write"),
        (render("default", SPEC), False, "Keep"),
        (render("default", network().spec), False, "Write"),
        (render("default", SPEC).replace("ipoib, ", ""), False, "Mend"),
        ("Default=0x7fff : ALL=full ;\n", False, "Refuse"),
        ("Default=0x7fff : ALL=full ;\n", True, "Write"),
    ],
)
def test_what_becomes_of_a_file(text: str | None, adopt: bool, step: str) -> None:
    wanted = render("default", SPEC)
    assert decide_file(file_state("default", text), text, wanted, adopt=adopt) == step
