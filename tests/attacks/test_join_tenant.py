"""A tenant on a node speaks from the node's own address. docs/threat-model.md, "Tenant on a node"."""

from __future__ import annotations

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.servers.server import BootOrder, Server
from provisioner.cluster.resources import of
from provisioner.join.admission.admit import NotYet
from tests.join.conftest import accounts, make_world, world
from tests.join.samples import BOOT_ID, OTHER_KEY
from tests.join.world import World

__all__ = ["accounts", "make_world", "world"]


def give_next_order(world: World, **changes: object) -> None:
    """The controller wants the node rebooted; its BMC has not been told yet."""
    given = {
        "id": "order-2",
        "reason": "ImageChanged",
        "ordered_time": world.clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        "attempt": 1,
        "image_ref": world.name,
        "boot_id_before": BOOT_ID,
    }
    world.apply_status("provisioner-boot-controller", {"order": to_json(BootOrder(**(given | changes)))})  # type: ignore[arg-type]


def test_a_tenant_on_a_running_node_gets_no_second_configuration_and_does_not_make_it_look_unjoined(
    world: World,
) -> None:
    world.become_node()
    assert world.refused(requestKey=OTHER_KEY).reason == "AlreadyFetched"
    assert world.tokens() == []
    condition = find_condition(world.server().status.conditions, "Joined")
    assert condition is not None
    assert condition.status == "True"


def test_a_tenant_cannot_fetch_ahead_of_a_reboot_that_the_bmc_has_not_carried_out(world: World) -> None:
    world.become_node()
    give_next_order(world)
    answer = world.join(requestKey=OTHER_KEY, bootID="22222222-8c55-4b57-9f8f-0d8a5a3f1e11")
    assert isinstance(answer, NotYet)
    assert answer.reason == "OrderNotCarriedOut"
    assert world.tokens() == []


def test_an_agent_of_the_old_boot_does_not_take_the_next_boots_configuration(world: World) -> None:
    """Honest, but late: the machine has no BMC, somebody is about to press the button."""
    world.become_node()
    world.admin.patch(of(Server), world.name, {"spec": {"bmc": None}})
    give_next_order(world)
    world.prepare_node()
    answer = world.join(requestKey=OTHER_KEY, bootID=BOOT_ID)
    assert isinstance(answer, NotYet)
    assert answer.reason == "StillOldBoot"


def test_a_tenant_who_read_the_request_key_gets_nothing_after_the_join(world: World) -> None:
    """It is in RAM, for root alone; but even so."""
    world.become_node()
    assert world.refused().reason == "AlreadyFetched"
