"""How long a boot may take: one time, by which it is given up and until which it may join."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.api.pools.node_pool import NodePool, StageTimeouts
from provisioner.api.servers.server import PowerStatus
from provisioner.boot.orders.stages import current_stage
from provisioner.join.admission.admit import Admitted, Denied, JoinFacts
from provisioner.rules.stage_timeouts import method_timeout_seconds, stage_timeout_seconds, time_to_join
from tests.join import samples
from tests.join.samples import ADDRESS, NOW, ORDER, admit, image, node, request, server, with_status


def pool(**seconds: int) -> NodePool:
    usual = samples.pool()
    return replace(usual, spec=replace(usual.spec, stage_timeout_seconds=StageTimeouts(**seconds)))


def test_a_pool_sets_the_time_of_a_stage_and_leaves_that_of_the_others() -> None:
    assert stage_timeout_seconds("Firmware", pool(firmware=1800)) == 1800
    assert stage_timeout_seconds("Root", pool(firmware=1800)) == 600
    assert stage_timeout_seconds("Ready", pool()) is None
    assert time_to_join(pool(firmware=1800)) == time_to_join(None) + timedelta(seconds=900)


@pytest.mark.parametrize(
    "seconds",
    [{}, {"firmware": 7200}, {"root": 7200, "system": 7200}, {"firmware": 10, "root": 10}],
    ids=["as shipped", "a long memory test", "a slow network", "a pool in a hurry"],
)
def test_a_boot_may_join_until_the_moment_at_which_it_is_given_up(seconds: dict[str, int]) -> None:
    slow = pool(**seconds)
    booting = with_status(server(), power=PowerStatus(order_id=ORDER, order_time=rfc3339_micro(NOW)))
    stage = current_stage(booting, slow)
    assert stage is not None
    assert stage.deadline is not None
    facts = JoinFacts(server=booting, pool=slow, image=image(), node=node())
    last, later = stage.deadline, stage.deadline + timedelta(seconds=1)
    assert isinstance(admit(facts, request(), ADDRESS, last), Admitted)
    refused = admit(facts, request(), ADDRESS, later)
    assert isinstance(refused, Denied)
    assert refused.reason == "OrderExpired"
    assert f"the {int((last - NOW).total_seconds())} s that a boot may take" in refused.message


def test_a_boot_that_the_running_system_begins_may_join_for_as_long_as_it_is_awaited() -> None:
    in_a_hurry = pool(firmware=60, ipxe=30, stage1=30, root=60, system=60, token=60)
    assert time_to_join(in_a_hurry) == timedelta(seconds=300)
    assert time_to_join(in_a_hurry, by_agent="Reboot") == timedelta(
        seconds=method_timeout_seconds("Reboot", in_a_hurry)
    )
    assert time_to_join(in_a_hurry, by_agent="Kexec") == timedelta(seconds=300)
    began = samples.order(method="Reboot", attempt_id="a", maintenance_ref="r01-u01-1", ordered_time=rfc3339_micro(NOW))
    facts = JoinFacts(server=with_status(server(), order=began, power=None), pool=in_a_hurry, image=image(), node=None)
    refused = [admit(facts, request(), ADDRESS, NOW + timedelta(seconds=seconds)) for seconds in (899, 901)]
    assert [isinstance(each, Denied) and each.reason == "OrderExpired" for each in refused] == [False, True]
