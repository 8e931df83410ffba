"""A DPU whose bgpd is away: what was enforced stays. In `make soak`, by ROUTES=both."""

from __future__ import annotations

import pytest

from tests.inventory.site import eventually
from tests.network.control.objects import attachment
from tests.network.control.site import Site
from tests.network.control.test_with_real_agents import Machines, machines

__all__ = ["machines"]


@pytest.mark.parametrize("machines", ["EVPN"], indirect=True)
def test_without_bgpd_what_was_enforced_stays_and_nothing_new_is_confirmed(machines: Machines, site: Site) -> None:
    machines.attach(machines.blue, 0)
    (target, _) = machines.attach(machines.blue, 1)
    exchange = machines.exchange
    assert exchange is not None
    machines.reaches(0, "pf0", target)
    daemon = exchange.daemons[machines.folder / "bgpd-0"]
    daemon.stop()
    site.add(attachment(machines.green, "late", f"{machines.names[0]}-s", function="pf1"))
    site.becomes(machines.green, "late", "False", "WaitsForDPU")

    def reason() -> str:
        body = site.network(machines.names[0]) or {}
        return str([each["reason"] for each in body["status"]["conditions"]])

    eventually(lambda: reason() == "['BgpdMissing', 'BgpdMissing']", "it is said")
    machines.stop_agent(0)
    machines.start_agent(0)
    assert machines.dpus[0].hosts["pf0"].pings(target), "over a restart of the agent, too"
    daemon.start()
    site.becomes(machines.green, "late", "True", "Enforced")
    assert machines.dpus[0].hosts["pf0"].pings(target)
