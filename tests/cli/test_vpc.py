"""`kubectl provision vpc attach|detach|quarantine|release|status`, by people who have a tenant's rights alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from lab.control_plane.plane import ControlPlane
from provisioner.api import VPCAttachment
from provisioner.api.machinery.errors import NotFound, Retryable
from provisioner.cli.kubectl.completion import complete
from provisioner.cli.main import kubectl
from provisioner.cli.vpc import waiting
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from tests.cli.tenants import Leadership, Person, blue, person_with
from tests.cli.vpc_situations import an_attachment
from tests.inventory.site import eventually
from tests.network.control.conftest import controller_account, leadership, site
from tests.network.control.objects import attachment, vpc
from tests.network.control.site import Site
from tests.people import until

__all__ = ["blue", "controller_account", "leadership", "site"]


@pytest.fixture
def editor(cluster: Cluster, control_plane: ControlPlane, tmp_path: Path, blue: str) -> Person:
    return person_with(cluster, control_plane, tmp_path, blue, "edit")


@pytest.fixture
def confirming(site: Site, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Has the agent of a machine's DPU confirm what it is told, from then on."""
    stop, threads = threading.Event(), list[threading.Thread]()

    def begin(machine: str) -> None:
        agent = site.agent(control_plane, tmp_path, machine)

        def work() -> None:
            while not stop.wait(0.2):
                with suppress(Retryable):
                    site.confirm(agent, machine)

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield begin
    stop.set()
    for thread in threads:
        thread.join(30)


def there(site: Site, namespace: str) -> list[str]:
    found = site.cluster.list(of(VPCAttachment), namespace=namespace).items
    return sorted(str(each["metadata"]["name"]) for each in found)


def test_a_tenant_attaches_waits_cuts_off_lets_in_and_detaches(
    site: Site, leadership: Leadership, editor: Person, blue: str, confirming: Callable[[str], None]
) -> None:
    machine = site.machine(1, blue)
    leadership()
    confirming(machine)
    server = f"{machine}-s"
    said = editor.done("attach", "main", server, "--wait", "--timeout", "300s")
    address = site.attachment(blue, server).status.addresses[0]
    assert f"vpcattachment/{server} attaches {server}/pf0 to VPC main\n" in said
    assert f"vpcattachment/{server} is enforced: DPU {machine}-d has confirmed it, address {address}" in said
    assert site.ready(blue, server) == ("True", "Enforced")

    said = editor.done("quarantine", server, "--wait", "--timeout", "300s")
    assert f"is quarantined: DPU {machine}-d has confirmed that nothing passes" in said
    assert site.attachment(blue, server).status.forwarding_state == "Quarantined"
    assert "is quarantined already" in editor.done("quarantine", f"{server}/pf0")
    assert "Quarantined" in editor.done("status", "main")

    said = editor.done("release", server, "--wait", "--timeout", "300s")
    assert "has confirmed it, address" in said
    assert site.ready(blue, server) == ("True", "Enforced")

    assert f"{server}/pf0 leaves VPC main" in editor.done("detach", f"{server}/pf0")
    assert there(site, blue) == []


def test_who_waits_is_told_what_for_and_the_attachment_stands_when_the_time_is_over(
    site: Site, leadership: Leadership, editor: Person, blue: str
) -> None:
    """The agent is silent."""
    machine = site.machine(1, blue)
    leadership()
    eventually(lambda: site.network(machine), "the controllers are at work")
    result = editor.run("attach", "main", f"{machine}-s", "--wait", "--timeout", "15s")
    assert result.exit_code == 5
    assert f"waits: WaitsForDPU: DPU '{machine}-d' has not confirmed generation" in result.stdout
    assert "what was asked for stands" in result.stderr
    assert there(site, blue) == [f"{machine}-s"]


def test_who_waits_for_a_person_is_told_so_soon(site: Site, leadership: Leadership, editor: Person, blue: str) -> None:
    """The server is another tenant's: what is said of it is the same as of none."""
    machine = site.machine(1, site.tenant("green"))
    leadership()
    result = editor.run("attach", "main", f"{machine}-s", "--wait", "--timeout", "300s")
    assert result.exit_code == 4
    assert "is not enforced: ServerNotAssigned: pf0 of Server" in result.stdout
    assert "green" not in result.output.replace(machine, "")


def test_all_are_checked_before_one_is_made(site: Site, editor: Person, blue: str) -> None:
    assert "no server, nor a function of one" in editor.refused("attach", "main", "a", "b/eth0")
    assert "there is no VPC nowhere in namespace" in editor.refused("attach", "nowhere", "a")
    assert "may not be more than 63" in editor.refused("attach", "main", "a", "b" * 64, code=3)
    assert "no IP address" in editor.refused("attach", "main", "a", "--address", "10.1", code=3)
    assert editor.run("attach", "main", "a", "b", "--address", "10.1.0.3").exit_code == 2
    assert there(site, blue) == []


def test_what_is_attached_already_stays_and_what_is_in_the_way_is_named(site: Site, editor: Person, blue: str) -> None:
    site.add(vpc(blue, "second", cidrs=["10.2.0.0/24"]))
    editor.done("attach", "main", "a", "a/pf0vf3", "--security-group", "web")
    assert there(site, blue) == ["a", "a-pf0vf3"]
    said = editor.done("attach", "main", "a", "b")
    assert "vpcattachment/a attaches a/pf0 to VPC main already, and waits: Unobserved" in said
    assert there(site, blue) == ["a", "a-pf0vf3", "b"]
    said = editor.refused("attach", "second", "c", "a")
    assert "a/pf0 is attached to VPC main already, by VPCAttachment a" in said
    assert "with other addresses or SecurityGroups" in editor.refused("attach", "main", "a", "--address", "10.1.0.9")
    assert "already, of another function" in editor.refused("attach", "main", "a-pf0vf3")
    assert there(site, blue) == ["a", "a-pf0vf3", "b"]


def test_a_dry_run_writes_nothing(site: Site, editor: Person, blue: str) -> None:
    assert "(server dry run)" in editor.done("attach", "main", "a", "--dry-run")
    assert there(site, blue) == []
    editor.done("attach", "main", "a")
    editor.done("quarantine", "a", "--dry-run=server")
    assert not site.attachment(blue, "a").spec.quarantined
    editor.done("detach", "a", "--dry-run")
    assert there(site, blue) == ["a"]
    assert editor.run("attach", "main", "b", "--dry-run", "--wait").exit_code == 2


def test_programs_read_what_was_written(site: Site, editor: Person, blue: str) -> None:
    made = json.loads(editor.done("attach", "main", "a", "-o", "json", "--address", "10.1.0.7", "--dpu", "d1"))
    spec = {"vpcRef": "main", "serverRef": "a", "function": "pf0", "addresses": ["10.1.0.7"], "dpuRef": "d1"}
    assert made["spec"] == spec | {"quarantined": False}
    assert editor.done("attach", "main", "a", "b", "-o", "name").splitlines() == [
        "vpcattachment.provisioner.dev/a",
        "vpcattachment.provisioner.dev/b",
    ]
    assert json.loads(editor.done("quarantine", "b", "-o", "json"))["spec"]["quarantined"] is True


def test_one_who_is_not_there_keeps_all_from_being_changed(site: Site, editor: Person, blue: str) -> None:
    editor.done("attach", "main", "a", "b/pf0vf0", "b/pf0vf1")
    for command in ("quarantine", "release", "detach"):
        said = editor.refused(command, "a", "nobody", "b")
        assert f"there is no attachment nobody in namespace {blue}" in said
        assert "b has several attachments: b-pf0vf0, b-pf0vf1" in said
    assert there(site, blue) == ["a", "b-pf0vf0", "b-pf0vf1"]
    editor.done("detach", "b/pf0vf1", "vpca/a")
    assert there(site, blue) == ["b-pf0vf0"]


def test_one_that_was_made_anew_meanwhile_is_not_deleted(
    site: Site, editor: Person, blue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor.done("attach", "main", "a")
    real, seen = Cluster.delete, list[bool]()

    def delete(self: Cluster, *arguments: Any, **more: Any) -> bool:
        if more.get("dry_run"):
            answer = real(self, *arguments, **more)
            real(self, of(VPCAttachment), "a", namespace=blue)
            site.add(attachment(blue, "a", "a"))
            seen.append(True)
            return answer
        return real(self, *arguments, **more)

    monkeypatch.setattr(Cluster, "delete", delete)
    assert editor.run("detach", "a").exit_code == 1
    assert seen
    assert there(site, blue) == ["a"]


def test_whoever_may_only_look_changes_nothing_and_is_told_what_it_takes(
    site: Site, cluster: Cluster, control_plane: ControlPlane, tmp_path: Path, editor: Person, blue: str
) -> None:
    viewer = person_with(cluster, control_plane, tmp_path, blue, "view")
    editor.done("attach", "main", "a")
    for command in (("attach", "main", "b"), ("quarantine", "a"), ("release", "a"), ("detach", "a")):
        said = viewer.refused(*command, code=3)
        assert f"kubectl -n {blue} create rolebinding NAME --clusterrole=edit" in said, command
    assert there(site, blue) == ["a"]
    assert "1 attachment, 0 enforced" in viewer.done("status", "main")


def test_in_a_foreign_namespace_everything_is_refused_in_words(site: Site, editor: Person) -> None:
    foreign = Person(editor.kubeconfig, site.tenant("green"))
    for command in (
        ("attach", "main", "a"),
        ("detach", "a"),
        ("quarantine", "a"),
        ("release", "a"),
        ("status",),
        ("status", "main"),
        ("why", "a"),
        ("why", "a", "b"),
    ):
        said = foreign.refused(*command, code=3)
        assert "cannot" in said
        assert "name your own namespace with -n" in said, command


def test_status_shows_each_attachment_with_what_it_waits_for(
    site: Site, leadership: Leadership, editor: Person, blue: str, confirming: Callable[[str], None]
) -> None:
    one, other = site.machine(1, blue), site.machine(2, site.tenant("green"))
    leadership()
    confirming(one)
    editor.done("attach", "main", f"{one}-s", "--wait", "--timeout", "300s")
    editor.done("attach", "main", f"{other}-s")
    site.becomes(blue, f"{other}-s", "False", "ServerNotAssigned")

    def counted() -> tuple[int | None, int | None]:
        found = site.vpc(blue).status
        return found.attachments, found.enforced_attachments

    eventually(lambda: counted() == (2, 1), "both are counted")
    vni = str(site.vpc(blue).status.vni)
    address = site.attachment(blue, f"{one}-s").status.addresses[0]
    told = editor.done("status", "main")
    assert told.startswith(f"{blue}/main VNI {vni}, 2 attachments, 1 enforced\n")
    rows = [line.split() for line in told.splitlines()[-2:]]
    assert rows[0] == [f"{one}-s", f"{one}-s", "pf0", address, f"{one}-d", "Enforced", "-"]
    assert rows[1][:7] == [f"{other}-s", f"{other}-s", "pf0", "-", "-", "NotEnforced", "ServerNotAssigned:"]
    assert editor.done("status").splitlines()[1].split() == ["main", "10.1.0.0/24", vni, "2", "1", "-"]
    report = json.loads(editor.done("status", "main", "-o", "json"))
    assert (report["kind"], report["vni"], report["waitsFor"]) == ("VPCReport", int(vni), None)
    assert [(each["state"], each["addresses"]) for each in report["attachments"]] == [
        ("Enforced", [address]),
        ("NotEnforced", []),
    ]
    assert "GATEWAYS" in editor.done("status", "main", "-o", "wide")


def test_an_administrator_waits_until_the_dpu_has_let_go_and_a_tenant_is_told_that_it_cannot_see_that(
    site: Site,
    leadership: Leadership,
    editor: Person,
    blue: str,
    control_plane: ControlPlane,
    confirming: Callable[[str], None],
) -> None:
    machine = site.machine(1, blue)
    leadership()
    confirming(machine)
    server = f"{machine}-s"
    editor.done("attach", "main", server, "--wait", "--timeout", "300s")
    assert "NetworkClaims, which you may not read" in editor.refused("detach", server, "--wait")
    assert there(site, blue) == [server], "nothing was deleted"
    administrator = Person(control_plane.kubeconfig, blue)
    said = administrator.done("detach", server, "--wait", "--timeout", "300s")
    assert "is gone from its DPU, which has confirmed that" in said
    assert f"port.{machine}-d.pf0" not in site.claims()


def test_what_goes_on_by_itself_is_waited_for_and_what_does_not_is_given_up_after_a_moment() -> None:
    watched = waiting.Enforcing(name="a", namespace="blue", uid="1")
    waits = an_attachment(reason="WaitsForDPU")
    assert watched.judge(waits, 0.0) is not None
    assert watched.judge(waits, 100.0) is None, "it was told"
    assert watched.end is None
    stuck = an_attachment(reason="NoDPU")
    watched.judge(stuck, 100.0)
    watched.judge(stuck, 104.0)
    assert watched.end is None
    assert "is not enforced: NoDPU" in (watched.judge(stuck, 105.0) or "")
    assert watched.end == 4
    old = an_attachment(status="True", reason="Enforced", generation=2, observed=1)
    again = waiting.Enforcing(name="a", namespace="blue", uid="1")
    assert "Unobserved" in (again.judge(old, 0.0) or ""), "what was said of an older spec counts for nothing"
    assert again.end is None


def test_one_that_somebody_deletes_is_not_waited_for(site: Site, editor: Person, blue: str) -> None:
    editor.done("attach", "main", "a")
    body = site.cluster.get(of(VPCAttachment), "a", namespace=blue)
    watched = waiting.Enforcing(name="a", namespace=blue, uid=body["metadata"]["uid"])
    site.cluster.delete(of(VPCAttachment), "a", namespace=blue)
    assert waiting.wait_for(site.cluster, [watched], timeout_seconds=60) == 4
    with pytest.raises(NotFound):
        site.attachment(blue, "a")


def test_without_a_namespace_that_of_the_context_is_meant(
    site: Site, editor: Person, blue: str, tmp_path: Path
) -> None:
    body = yaml.safe_load(editor.kubeconfig.read_text())
    body["contexts"].append({"name": "blue", "context": body["contexts"][0]["context"] | {"namespace": blue}})
    file = tmp_path / "with-namespace"
    file.write_text(yaml.safe_dump(body))

    def run(*more: str) -> Result:
        return CliRunner().invoke(kubectl, ["vpc", "attach", "main", "a", "--kubeconfig", str(file), *more])

    assert 'in the namespace "default"' in run().stderr
    assert run("--context", "nobody").exit_code == 1
    assert run("--context", "blue").exit_code == 0
    assert there(site, blue) == ["a"]


def test_names_of_the_namespace_are_completed_and_none_where_they_may_not_be_read(
    site: Site, editor: Person, blue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add(vpc(blue, "second", cidrs=["10.2.0.0/24"]))
    editor.done("attach", "main", "a", "b")
    monkeypatch.setenv("KUBECONFIG", str(editor.kubeconfig))

    def completed(*words: str) -> list[str]:
        return complete(kubectl, ["vpc", *words]).splitlines()[:-1]

    until(lambda: completed("attach", "-n", blue, "") == ["main", "second"])
    until(lambda: completed("detach", "-n", blue, "a", "") == ["b"])
    assert completed("detach", "-n", "default", "") == []
    assert completed("attach", "-n", blue, "main", "") == [], "a tenant reads no Servers"
    assert any(each.startswith("quarantine") for each in completed(""))
