"""The tests of attacks that admission policies refuse, on an API server with the shipped roles and without the bindings
of these policies: there nothing refuses them.

Each is the very test of the attack, which ends with the words that what it tried was not refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES
from provisioner.join.credentials.listed import ListedServer, binding_of, role_of, shard_of
from tests.attacks import (
    test_bmc_secrets,
    test_boot_account,
    test_break_glass,
    test_check_labels,
    test_discovery_flood,
    test_forgotten_proof,
    test_lies_about_joins,
    test_node_at_its_limit,
    test_old_certificate,
    test_request_policies,
    test_request_tricks,
)
from tests.conftest import install
from tests.maintenance.plane import Plane
from tests.people import BOOT, bind, bind_in, condition, kubeconfig_of, of_account

requests, tricks, shells, accounts = test_request_policies, test_request_tricks, test_break_glass, test_boot_account
limits, joins, old = test_node_at_its_limit, test_lies_about_joins, test_old_certificate
proofs, flood, labels = test_forgotten_proof, test_discovery_flood, test_check_labels


@dataclass
class Site:
    """unique: of one test, with a Node of that name."""

    plane: ControlPlane
    admin: Cluster
    folder: Path
    unique: str = ""

    def path(self, user: str, group: str | None = None) -> Path:
        return kubeconfig_of(self.plane, self.folder, user, group=group)

    def user(self, user: str, group: str | None = None) -> Cluster:
        return Cluster.connect(self.path(user, group))

    @property
    def kubelet(self) -> Cluster:
        return self.user(f"system:node:{self.unique}", "system:nodes")

    @property
    def alice(self) -> Cluster:
        """An operator."""
        return self.user("alice")

    @property
    def ada(self) -> Cluster:
        """An administrator."""
        return self.user("ada")

    def account(self, name: str) -> Cluster:
        """One of the services'."""
        return self.user(of_account(name))

    @property
    def namespace(self) -> str:
        """A tenant's."""
        self.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.unique}}, manager="tests")
        return self.unique

    @property
    def boot(self) -> Cluster:
        return self.user(BOOT, "system:serviceaccounts")

    @property
    def maintenance(self) -> Cluster:
        return self.user(of_account("maintenance"))


@pytest.fixture(scope="module")
def plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("without-policies")
    with ControlPlane(folder / "plane", binaries, node_grace="1h") as plane:
        admin = Cluster.connect(plane.kubeconfig)
        install(admin, without="ValidatingAdmissionPolicyBinding")
        bind(admin, "provisioner-operator", "alice")
        bind(admin, "provisioner-administrator", "ada")
        bind(admin, "provisioner-administrator", "rita")
        bind_in(admin, test_bmc_secrets.BMCS, "provisioner-bmc-secrets", "rita")
        bind_in(admin, shells.NAMESPACE, "provisioner-break-glass", "oncall")
        bind_in(admin, "default", "provisioner-break-glass-events", "oncall")
        yield Site(plane, admin, folder)


@pytest.fixture
def site(plane: Site, unique: str) -> Site:
    metadata = {"name": unique, "annotations": {"provisioner.dev/server-uid": "a-server"}}
    plane.admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    plane.admin.strategic_patch(NODES, unique, condition("Ready", "KubeletReady"), subresource="status")
    return Site(plane.plane, plane.admin, plane.folder, unique)


def joined(site: Site) -> Plane:
    made = Plane(site.admin, site.admin, f"{site.unique}p")
    joins.order(made)
    return made


@dataclass
class Inventory:
    """What a flood's test needs of its site."""

    cluster: Cluster
    inventory_account: Cluster
    unique: str
    macs: Iterator[str]

    @classmethod
    def of(cls, site: Site) -> Inventory:
        digits = ":".join(site.unique[1:9][at : at + 2] for at in (0, 2, 4, 6))
        macs = iter([f"52:54:{digits}", f"52:55:{digits}"])
        return cls(site.admin, site.user(of_account("inventory")), f"{site.unique}f", macs)


NOW_ = (requests.by_strategic_merge, requests.REBOOT_REQUESTED)
ATTACKS: dict[str, Callable[[Site], None]] = {
    "now": lambda s: requests.test_now_is_for_those_who_may_disrupt(s.alice, s.ada, s.admin, s.unique, *NOW_),
    "patient becomes urgent": lambda s: requests.test_a_patient_request_does_not_become_an_urgent_one(
        s.alice, s.admin, s.unique
    ),
    "no reason": lambda s: requests.test_a_reason_that_says_nothing_is_refused_in_words(s.alice, s.unique, "Soon"),
    "no deadline": lambda s: requests.test_a_deadline_that_is_not_told_is_refused_in_words(
        s.alice, s.unique, "tonight"
    ),
    "Maintenance under now": lambda s: requests.test_a_maintenance_under_now_is_for_those_who_may_disrupt(
        s.alice, s.ada, s.admin, s.unique
    ),
    "another's name": lambda s: requests.test_nobody_asks_in_another_name(
        s.alice, s.unique, requests.entry("user-bob", user="bob")
    ),
    "as a rollout": lambda s: requests.test_nobody_asks_as_a_rollout(s.alice, s.ada, s.admin, s.unique),
    "withdraws another's": lambda s: requests.test_nobody_takes_over_or_withdraws_what_another_asked_for(
        s.alice, s.ada, s.admin, s.unique
    ),
    "takes off the finalizer": lambda s: (
        requests.test_the_finalizer_that_guarantees_the_release_is_not_an_operators_to_take_off(
            s.alice, s.maintenance, s.admin, s.unique
        )
    ),
    "says how a node is": lambda s: requests.test_the_right_to_ask_is_not_the_right_to_say_how_a_node_is(
        s.alice, s.admin, s.unique
    ),
    "a node asks": lambda s: requests.test_a_node_asks_for_nothing_in_its_own_name(s.kubelet, s.admin, s.unique, *NOW_),
    "a node withdraws a hold": lambda s: requests.test_a_node_does_not_withdraw_a_hold_and_goes_on_reporting_under_it(
        s.kubelet, s.alice, s.admin, s.unique
    ),
    "a node boots itself": lambda s: requests.test_a_machine_is_booted_by_nobody_who_may_not_disrupt(
        s.kubelet, s.alice, s.ada, s.maintenance, s.admin, s.unique
    ),
    "a stolen boot account verifies": lambda s: requests.test_a_stolen_boot_account_verifies_nothing(
        s.plane, s.alice, s.admin, f"{s.unique}s", s.folder
    ),
    "a stolen account cordons": lambda s: (
        requests.test_a_stolen_maintenance_account_neither_cordons_nor_forges_conditions(
            s.maintenance, s.admin, s.unique
        )
    ),
    "a stolen account changes a pod": lambda s: requests.test_a_stolen_maintenance_account_changes_no_pod(
        s.maintenance, s.admin, s.unique
    ),
    "a tool boots a machine": lambda s: requests.test_a_tool_that_writes_conditions_of_its_own_boots_no_machine(
        s.plane, s.admin, s.unique, s.folder
    ),
    "a node moves the time": lambda s: tricks.test_a_node_does_not_move_the_time_from_which_a_request_counts(
        s.admin, s.unique, s.kubelet, tricks.REBOOT_REQUESTED, "Deadline", "new driver deadline=+2h"
    ),
    "renews what was asked for now": lambda s: tricks.test_a_right_to_ask_does_not_renew_what_was_asked_for_now(
        s.alice, s.ada, s.admin, s.unique
    ),
    "many requests": lambda s: tricks.test_many_requests_do_not_keep_the_kubelet_from_its_status(
        s.alice, s.admin, s.unique, s.kubelet, "True"
    ),
    "thousands of conditions": lambda s: tricks.test_a_node_does_not_hide_behind_thousands_of_conditions(
        s.admin, s.unique, s.kubelet
    ),
    "a node was prepared": lambda s: tricks.test_a_node_does_not_say_for_which_order_it_was_prepared(
        s.admin, s.unique, s.kubelet, tricks.PREPARED_ORDER_ANNOTATION
    ),
    "a tool speaks for a machine": lambda s: (
        tricks.test_a_tool_that_may_write_a_nodes_status_speaks_for_no_machine_and_no_controller(
            s.plane, s.admin, s.unique, s.folder, tricks.NODE_FACTS_ANNOTATION
        )
    ),
    "an owner that is not there": lambda s: tricks.test_nobody_deletes_a_maintenance_by_an_owner_that_is_not_there(
        s.alice, s.ada, s.unique
    ),
    "the numbers of another": lambda s: tricks.test_nobody_takes_the_numbers_of_another_server(
        s.alice, s.unique, "{0}-1"
    ),
    "fills its conditions": lambda s: limits.fill_conditions(s.kubelet, s.unique),
    "fills its annotations": lambda s: limits.fill_annotations(s.kubelet, s.unique),
    "takes the places of those who ask": lambda s: limits.test_a_machine_does_not_take_the_places_of_those_who_ask(
        joined(s), s.user(f"system:node:{s.unique}p-u01", "system:nodes"), s.alice
    ),
    "a shell in another's name": lambda s: shells.test_a_shell_that_would_not_be_what_the_record_says_is_refused(
        "in somebody else's name", s.user("oncall"), s.unique
    ),
    "a node opens a shell": lambda s: shells.test_a_node_opens_no_shell_in_a_persons_name(
        s.plane, s.admin, s.unique, s.folder
    ),
    "tells of anything": lambda s: shells.test_who_tells_of_shells_tells_of_nothing_else(
        {"reason": "Rebooted"}, "the Events of shells", s.user("oncall"), s.admin, s.unique, s.unique
    ),
    "lies about a join": lambda s: joins.test_it_says_nothing_else_of_a_join_that_is_over(
        joined(s), s.boot, "another kernel"
    ),
    "takes a record away": lambda s: joins.test_it_does_not_take_the_record_of_a_join_away(joined(s), s.boot),
    "any Secret": lambda s: accounts.test_it_hands_out_bootstrap_tokens_and_no_other_secret(s.boot, s.unique),
    "another group's token": lambda s: accounts.test_it_cannot_mint_a_token_of_a_group_that_others_approve(s.boot),
    "deletes a Secret": lambda s: accounts.test_it_cannot_delete_anybody_elses_secret(s.boot, s.admin, s.unique),
    "accepts a machine": lambda s: accounts.test_it_makes_unknown_machines_known_but_accepts_none(
        s.boot, s.admin, s.unique
    ),
    "orders a boot": lambda s: accounts.test_it_reports_progress_but_orders_no_boot(s.boot, s.admin, f"{s.unique}o"),
    "speaks of a rack": lambda s: accounts.test_it_says_whether_a_cache_is_good_and_nothing_else_of_a_rack(
        s.boot, s.admin, s.unique
    ),
    "lets into production": lambda s: accounts.test_it_lets_no_node_into_production(
        s.boot, s.admin, f"{s.unique}i", {"lifecycle": "InProduction"}
    ),
    "deletes a registered server": lambda s: (
        flood.test_the_controllers_account_deletes_only_unknown_machines_that_nobody_touched(Inventory.of(s))
    ),
    "has a proof forgotten": lambda s: proofs.test_operators_and_the_accounts_of_other_services_may_not(
        s.path("alice"), s.admin, s.account, proofs.make_proved(s.admin, f"{s.unique}f")
    ),
    "writes a proof": lambda s: proofs.test_an_administrator_writes_nothing_else_of_a_servers_status(
        s.path("ada"),
        s.admin,
        proofs.make_proved(s.admin, f"{s.unique}f"),
        {"attestation": {"firmwareProfile": "another"}},
    ),
    "tells what was not forgotten": lambda s: (
        proofs.test_an_administrator_writes_no_other_event_than_of_what_was_forgotten_in_its_own_name(
            s.path("ada"), s.admin, proofs.make_proved(s.admin, f"{s.unique}f"), {"reason": "JoinConfigurationIssued"}
        )
    ),
    "labels a Job as a check": lambda s: labels.test_a_tenant_labels_nothing_as_a_check(
        labels.make_tenant(s.admin, s.plane, s.namespace, s.folder), s.namespace, "the Job"
    ),
    "labels a pod as a check": lambda s: labels.test_a_tenant_labels_nothing_as_a_check(
        labels.make_tenant(s.admin, s.plane, s.namespace, s.folder), s.namespace, "a pod"
    ),
    "labels a Job as a check afterwards": lambda s: labels.test_a_tenant_labels_none_of_its_own_as_a_check_afterwards(
        labels.make_tenant(s.admin, s.plane, s.namespace, s.folder), s.namespace
    ),
    "BMC Secrets": lambda s: test_bmc_secrets.test_who_writes_bmc_secrets_gets_at_no_other(
        s.path("rita"), s.admin, s.unique
    ),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_attack_is_not_refused_without_the_bindings_of_the_policies(
    attack: Callable[[Site], None], site: Site
) -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        attack(site)


def test_a_certificate_of_an_earlier_boot_writes_without_the_policy_on_credentials(site: Site) -> None:
    """The list of those that count says that it is none."""
    name = site.unique
    site.admin.apply(
        role_of(shard_of(name), {name: ListedServer(credentials=("X509SHA256=" + "ab" * 32,))}), manager="tests"
    )
    site.admin.apply(binding_of(shard_of(name)), manager="tests")
    tries = old.tries_to_write(site.kubelet, name)
    for what in ("its Node", "its Node's status", "its Lease", "an Event"):
        assert tries[what](), what
