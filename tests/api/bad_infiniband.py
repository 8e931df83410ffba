"""Bad objects of InfiniBand, each with the words that its author reads, and a good twin."""

from __future__ import annotations

from typing import Any

from tests.api.bad_row import Row
from tests.api.objects import API, server

GUID = "0x506b4b0300a1b200"


def _object(kind: str, spec: dict[str, Any], name: str = "{}") -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def fabric(**spec: Any) -> dict[str, Any]:
    return _object("InfiniBandFabric", {"manager": "OpenSM", **spec})


def network(*partitions: dict[str, Any]) -> dict[str, Any]:
    return _object("InfiniBandNetwork", {"manager": "OpenSM", "partitions": [*partitions]})


def pool(*ranges: tuple[int, int], **more: Any) -> dict[str, Any]:
    spec = {"vniRanges": [{"first": 10000, "last": 19999}], **more}
    found = [{"first": first, "last": last} for first, last in ranges]
    return _object("NetworkPool", spec | ({"pkeyRanges": found} if found else {}), "default")


def ufm(**changes: Any) -> dict[str, Any]:
    access = {"url": "https://10.90.0.40", "credentialsName": "ufm", **changes}
    return _object("InfiniBandFabric", {"manager": "UFM", "ufm": access})


def _port(bad: str, *words: str) -> Row:
    return Row(
        f"GUID {bad}",
        server(infinibandPorts=[{"guid": bad}]),
        server(infinibandPorts=[{"guid": GUID}]),
        ("spec.infinibandPorts[0].guid", *words),
    )


_GOOD = {"pkey": 0x101, "vpc": "blue/main", "guids": [GUID]}

INFINIBAND = (
    _port("506B4B0300A1B200", f"write it as {GUID}"),
    _port("50:6b:4b:03:00:a1:b2:00", f"write it as {GUID}"),
    _port("52:54:00:12:34:56", "0x and 16 lower-case hexadecimal digits"),
    _port("0x0000000000000000", "all zero"),
    Row(
        "a port twice in a server",
        server(infinibandPorts=[{"guid": GUID}, {"guid": GUID}]),
        server(infinibandPorts=[{"guid": GUID}]),
        ("spec.infinibandPorts[1]", "Duplicate value"),
    ),
    Row("a UFM without a way to it", fabric(manager="UFM"), ufm(), ("spec.ufm", "says how a UFM is reached")),
    Row("an OpenSM with a UFM", fabric(ufm=ufm()["spec"]["ufm"]), fabric(), ("spec.ufm", "leave it out")),
    Row("a UFM in the clear", ufm(url="http://10.90.0.40"), ufm(), ("spec.ufm.url", "write it as https://10.90.0.40")),
    Row("a UFM's password in its URL", ufm(url="https://a:b@10.90.0.40"), ufm(), ("spec.ufm.url", "and a host")),
    Row(
        "a shared port that is none", fabric(sharedGuids=["ALL"]), fabric(sharedGuids=[GUID]), ("spec.sharedGuids[0]",)
    ),
    Row("the default partition as a VPC's", network(_GOOD | {"pkey": 0x7FFF}), network(_GOOD), ("32766",)),
    Row(
        "a partition of two lines",
        network(_GOOD | {"vpc": "blue/main\nx"}),
        network(_GOOD),
        ("spec.partitions[0].vpc",),
    ),
    Row("a word for a port", network(_GOOD | {"guids": ["ALL"]}), network(_GOOD), ("spec.partitions[0].guids[0]",)),
    Row("the P_Key of the default partition", pool((1, 0x7FFF)), pool((1, 0x7FFE)), ("32766",)),
    Row("a reversed range of P_Keys", pool((9, 8)), pool((8, 9)), ("spec.pkeyRanges[0].last", "reversed")),
    Row("overlapping ranges of P_Keys", pool((1, 9), (9, 12)), pool((1, 9), (10, 12)), ("two ranges overlap",)),
    Row(
        "a smaller range of P_Keys",
        pool((256, 300)),
        pool((256, 511), (600, 700)),
        ("a range only grows", "set closed to true"),
        before=pool((256, 511)),
    ),
    Row(
        "no ranges of P_Keys any more",
        pool(),
        pool((256, 511)),
        ("spec.pkeyRanges", "a range only grows"),
        before=pool((256, 511)),
    ),
)
