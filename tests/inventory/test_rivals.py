"""Who claims the same BMC, however its address is written."""

from __future__ import annotations

from typing import Any

from provisioner.inventory.rivals import ClaimIndex, exclusive_claims, find_rivals


def server(name: str, address: str, system: str | None = None, *, age: int = 0) -> dict[str, Any]:
    bmc = {"address": address} | ({"systemID": system} if system else {})
    spec = {"acceptance": "Accepted", "bootMACAddress": f"52:54:00:00:00:{len(name):02x}", "bmc": bmc}
    metadata = {"name": name, "creationTimestamp": f"2026-01-{20 - age:02d}T00:00:00Z"}
    return {"kind": "Server", "metadata": metadata, "spec": spec}


def rivals(*servers: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The rivals of each server."""
    index = ClaimIndex()
    by_name = {body["metadata"]["name"]: body for body in servers}
    for name, body in by_name.items():
        index.change(name, None, body)
    return {
        name: find_rivals(body, index.claimants(exclusive_claims(body)), by_name.get) for name, body in by_name.items()
    }


def test_a_bmc_is_the_same_however_its_address_is_written() -> None:
    old, new = server("o", "https://BMC.example/redfish", age=1), server("nn", "https://bmc.example:443")
    assert rivals(old, new) == {"o": {}, "nn": {"o": "BMC address bmc.example"}}


def test_a_claim_without_a_system_clashes_with_every_system_of_the_bmc() -> None:
    whole = server("o", "https://b", age=1)
    one, two = server("nn", "https://b/", "1"), server("mmm", "https://B:443", "2")
    assert rivals(one, two, whole) == {
        "o": {},
        "nn": {"o": "BMC address b (system 1)"},
        "mmm": {"o": "BMC address b (system 2)"},
    }
    late = server("llll", "https://b")
    assert rivals(one, two, late)["llll"] == {}, "of the same age, the first by name is right"
    assert rivals(server("o", "https://b", "1", age=1), late)["llll"] == {"o": "BMC address b"}


def test_the_systems_of_a_chassis_and_other_ports_are_nobodys_rivals() -> None:
    servers = (server("o", "https://b", "1"), server("nn", "https://b", "2"), server("mmm", "https://b:8443"))
    assert rivals(*servers) == {"o": {}, "nn": {}, "mmm": {}}


def test_a_change_concerns_who_clashes_before_or_after_it() -> None:
    index = ClaimIndex()
    whole, other = server("o", "https://b"), server("o", "https://c")
    index.change("nn", None, server("nn", "https://b", "1"))
    assert index.change("mmm", None, server("mmm", "https://b", "2")) == frozenset()
    assert index.change("o", None, whole) == {"nn", "mmm"}
    assert index.change("o", whole, other) == {"nn", "mmm"}
    assert index.claimants(exclusive_claims(whole)).keys() >= {
        claim for claim in exclusive_claims(whole) if claim.what == "BMC address"
    }
    index.change("mmm", server("mmm", "https://b", "2"), None)
    index.change("nn", server("nn", "https://b", "1"), None)
    assert not any(claim.what == "BMC address" for claim in index.claimants(exclusive_claims(whole)))
