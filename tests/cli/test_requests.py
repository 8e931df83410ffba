"""`kubectl provision reboot|reimage|power-cycle|drain`: what is filed, and what is refused before that."""

from __future__ import annotations

import json
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from lab.binaries.obtain import Binaries
from provisioner.api import Image, Maintenance, Server
from provisioner.api.machinery.meta import parse_time
from provisioner.cli.kubectl import waiting
from provisioner.cli.kubectl.filing import Filed
from provisioner.cluster.resources import NODES, of
from tests.api.objects import image
from tests.cli.rack_of_nodes import API, RackOfNodes
from tests.people import until


def test_a_reboot_is_filed_under_the_name_by_which_the_api_server_knows_the_asker(rack: RackOfNodes) -> None:
    name = rack.add()
    said = rack.done("reboot", name, "-m", "new driver")
    assert said == f"node/{name} reboot requested, when it is idle: Maintenance {name}-1\n"
    (maintenance,) = rack.filed(name)
    (requestor,) = maintenance.spec.requestors
    assert (maintenance.name, requestor.name, requestor.user) == (f"{name}-1", "user-lab-admin", "lab-admin")
    assert (requestor.action, requestor.policy, requestor.message) == ("Reboot", "WhenIdle", "new driver")
    assert requestor.requested_time is not None
    assert abs(datetime.now(UTC) - parse_time(requestor.requested_time)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["power-cycle"], ("PowerCycle", "WhenIdle", None)),
        (["drain", "--now"], ("Drain", "Now", None)),
        (["reimage", "--policy", "Now"], ("Reimage", "Now", None)),
        (["reboot", "--deadline", "2h"], ("Reboot", "Deadline", timedelta(hours=2))),
        (["reboot", "--deadline", "1d", "--policy", "Deadline"], ("Reboot", "Deadline", timedelta(days=1))),
        (["reboot", "--when-idle", "--policy", "WhenIdle"], ("Reboot", "WhenIdle", None)),
    ],
)
def test_the_flags_say_action_policy_and_deadline(
    rack: RackOfNodes, arguments: list[str], expected: tuple[str, str, timedelta | None]
) -> None:
    name = rack.add()
    rack.done(*arguments, name)
    requestor = rack.filed(name)[0].spec.requestors[0]
    assert (requestor.action, requestor.policy) == expected[:2]
    if expected[2] is None:
        assert requestor.deadline_time is None
    else:
        assert requestor.deadline_time is not None
        ahead = parse_time(requestor.deadline_time) - datetime.now(UTC)
        assert abs(ahead - expected[2]) < timedelta(minutes=1)


def test_asking_again_changes_the_request_and_files_no_second_one(rack: RackOfNodes) -> None:
    name = rack.add()
    rack.done("reboot", name)
    first = rack.filed(name)[0].spec.requestors[0]
    rack.done("reboot", name)
    assert rack.filed(name)[0].spec.requestors == (first,)
    rack.done("reimage", name, "--now", "-m", "after all")
    (maintenance,) = rack.filed(name)
    assert [(r.action, r.policy, r.message) for r in maintenance.spec.requestors] == [("Reimage", "Now", "after all")]


def test_several_who_ask_meet_in_one_maintenance_and_withdraw_apart(rack: RackOfNodes) -> None:
    name = rack.add()
    rack.done("reboot", name, "--as", "alice", "--as-group", "system:masters")
    said = rack.done("reimage", name, "--as", "bob@example.com", "--as-group", "system:masters")
    assert "others ask for a disturbance, too" in said
    (maintenance,) = rack.filed(name)
    assert [r.user for r in maintenance.spec.requestors] == ["alice", "bob@example.com"]
    rack.done("cancel", name, "--as", "alice", "--as-group", "system:masters")
    assert [r.user for r in rack.filed(name)[0].spec.requestors] == ["bob@example.com"]


def test_two_who_ask_at_the_same_moment_are_both_heard(rack: RackOfNodes) -> None:
    name = rack.add()
    askers = [f"asker-{i}" for i in range(6)]
    threads = [
        threading.Thread(target=rack.done, args=("reboot", name, "--as", asker, "--as-group", "system:masters"))
        for asker in askers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (maintenance,) = rack.filed(name)
    assert sorted(r.user or "" for r in maintenance.spec.requestors) == askers


def test_what_has_begun_to_boot_or_has_ended_takes_no_further_request(rack: RackOfNodes) -> None:
    name = rack.add()
    rack.done("reboot", name)
    reboot = {
        "id": "r1",
        "method": "Kexec",
        "imageRef": "gpu-node-1",
        "imageDigest": "sha256:" + "9f" * 32,
        "startedTime": "2026-01-01T00:00:00Z",
        "deadlineTime": "2026-01-01T00:03:00Z",
    }
    rack.executor_says(f"{name}-1", phase="Rebooting", reboot=reboot)
    assert f"Maintenance {name}-2" in rack.done("reboot", name, "-m", "again")
    rack.executor_says(f"{name}-1", phase="Completed", reboot=reboot)
    rack.executor_says(f"{name}-2", phase="Cancelled")
    assert f"Maintenance {name}-3" in rack.done("reboot", name)
    assert [len(m.spec.requestors) for m in rack.filed(name)] == [1, 1, 1]


def test_a_name_that_was_given_to_another_servers_maintenance_is_passed_over(rack: RackOfNodes) -> None:
    name, other = rack.add(), rack.add()
    given = {"metadata": {"name": f"{name}-1"}, "spec": {"serverRef": other}}
    rack.admin.create(of(Maintenance), {"apiVersion": API, "kind": "Maintenance"} | given)
    assert f"Maintenance {name}-2" in rack.done("reboot", name)
    assert [m.name for m in rack.filed(name)] == [f"{name}-2"]
    assert [(m.name, m.spec.requestors) for m in rack.filed(other)] == [(f"{name}-1", ())]


def test_a_person_who_thinks_better_of_the_image_asks_for_one_boot_and_not_for_two(rack: RackOfNodes) -> None:
    name = rack.add()
    for wanted in ("a", "b"):
        rack.admin.create(of(Image), image(f"{rack.prefix}-{wanted}"))
    rack.done("reimage", name, "--image", f"{rack.prefix}-a")
    rack.done("reimage", name, "--image", f"{rack.prefix}-a", "--as", "bob", "--as-group", "system:masters")
    rack.done("reimage", name, "--image", f"{rack.prefix}-b")
    asked = {m.name: [(r.user, r.image_ref) for r in m.spec.requestors] for m in rack.filed(name)}
    assert [image_ref for _, image_ref in asked[f"{name}-2"]] == [f"{rack.prefix}-b"]
    assert [user for user, _ in asked[f"{name}-1"]] == ["bob"], "the first request was withdrawn"
    for wanted in ("a", "b"):
        rack.admin.delete(of(Image), f"{rack.prefix}-{wanted}")


def test_a_request_for_another_image_is_filed_apart(rack: RackOfNodes) -> None:
    name = rack.add()
    for wanted in ("a", "b"):
        rack.admin.create(of(Image), image(f"{rack.prefix}-{wanted}"))
    rack.done("reimage", name, "--image", f"{rack.prefix}-a")
    rack.done("reimage", name, "--image", f"{rack.prefix}-b", "--as", "bob", "--as-group", "system:masters")
    rack.done("reboot", name, "--as", "eve", "--as-group", "system:masters")
    users = {m.name: [r.user for r in m.spec.requestors] for m in rack.filed(name)}
    assert users == {f"{name}-1": ["lab-admin", "eve"], f"{name}-2": ["bob"]}
    for wanted in ("a", "b"):
        rack.admin.delete(of(Image), f"{rack.prefix}-{wanted}")


@pytest.mark.parametrize("selection", ["pool", "selector"])
def test_nodes_are_selected_by_pool_or_label(rack: RackOfNodes, selection: str) -> None:
    first, second = rack.add(), rack.add()
    rack.add(node=False)
    wanted = ["--pool", rack.prefix] if selection == "pool" else ["-l", f"provisioner.dev/pool={rack.prefix}"]
    said = rack.done("reboot", *wanted, "-o", "name")
    assert said == f"maintenance.provisioner.dev/{first}-1\nmaintenance.provisioner.dev/{second}-1\n"


def test_all_nodes_are_disturbed_only_where_somebody_said_yes(rack: RackOfNodes) -> None:
    rack.add()
    refused = rack.run("reboot", "--all")
    assert refused.exit_code == 1
    assert "--yes" in refused.stderr
    assert rack.filed(rack.names[0]) == []
    rack.done("reboot", "--all", "--dry-run")
    assert rack.filed(rack.names[0]) == []


def test_a_name_may_be_spelled_as_kubectl_spells_it(rack: RackOfNodes) -> None:
    name = rack.add()
    rack.done("reboot", f"node/{name}", name)
    assert len(rack.filed(name)) == 1


def test_a_dry_run_is_answered_by_the_api_server_and_writes_nothing(rack: RackOfNodes) -> None:
    name = rack.add()
    for form in ("--dry-run", "--dry-run=server"):
        assert f"Maintenance {name}-1 (server dry run)" in rack.done("reboot", form, name)
    assert rack.filed(name) == []


def test_json_yaml_and_wide_show_what_was_filed(rack: RackOfNodes) -> None:
    first, second = rack.add(), rack.add()
    one = json.loads(rack.done("reboot", first, "-o", "json"))
    assert (one["kind"], one["spec"]["serverRef"]) == ("Maintenance", first)
    several = yaml.safe_load(rack.done("reboot", first, second, "-o", "yaml"))
    assert [m["metadata"]["name"] for m in several["items"]] == [f"{first}-1", f"{second}-1"]
    header, row, _ = rack.done("reboot", first, second, "-o", "wide").splitlines()
    assert header.split() == ["NODE", "MAINTENANCE", "ACTION", "POLICY", "DEADLINE", "IMAGE", "PHASE", "REQUESTOR"]
    assert row.split()[:4] == [first, f"{first}-1", "Reboot", "WhenIdle"]


BAD = [
    (["reboot", "nobody"], 1, "there is no Node and no Server nobody"),
    (["reboot"], 1, "no node was named"),
    (["reboot", "{name}", "--all"], 1, "node names and --all were given"),
    (["reboot", "--all", "--pool", "x"], 1, "--all and --pool were given"),
    (["reboot", "-l", "a=nothing"], 1, "no node is selected by -l a=nothing"),
    (["reboot", "{name}", "--now", "--when-idle"], 2, "contradict each other"),
    (["reboot", "{name}", "--policy", "Deadline"], 2, "needs --deadline"),
    (["reboot", "{name}", "--deadline", "tonight"], 1, "'tonight', which is no time"),
    (["reboot", "{name}", "--deadline", "2020-01-01T00:00:00Z"], 1, "is over already"),
    (["reboot", "{name}", "--deadline", "2030-01-01"], 1, "could be several moments"),
    (["reboot", "{name}", "--deadline", "400d"], 1, "more than 90 days ahead"),
    (["reboot", "{name}", "--image", "nothing"], 1, "there is no Image nothing"),
    (["drain", "{name}", "--image", "x"], 2, "No such option"),
    (["reboot", "{name}", "--timeout", "1m"], 2, "--timeout is for --wait"),
    (["reboot", "{name}", "--wait", "--dry-run"], 2, "--wait and --dry-run"),
    (["reboot", "{name}", "--wait", "--timeout", "soon"], 1, "no span of time"),
    (["reboot", "{name}", "-m", "x" * 1025], 1, "--reason has 1025 characters"),
    (["power-cycle", "{name}", "{without_bmc}"], 1, "{without_bmc} has no BMC"),
    (
        ["reboot", "{name}", "{pending}"],
        1,
        "waits to be accepted; remedy: kubectl provision accept {pending}",
    ),
    (["reboot", "{name}", "{poolless}"], 1, "Server '{poolless}' is in no NodePool"),
    (["reboot", "{name}", "{unborn}"], 1, "Server {unborn} has no Node yet"),
    (["reboot", "{name}", "{foreign}"], 1, "Node {foreign} is not of a Server of the provisioner"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), BAD, ids=[" ".join(row[0])[:40] for row in BAD])
def test_bad_input_is_told_before_anything_is_written(
    rack: RackOfNodes, arguments: list[str], code: int, words: str
) -> None:
    names = {
        "name": rack.add(),
        "without_bmc": rack.add(bmc=None),
        "pending": rack.add(acceptance="Pending"),
        "poolless": rack.add(nodePoolRef=None),
        "unborn": rack.add(node=False),
        "foreign": f"{rack.prefix}-foreign",
    }
    rack.admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": names["foreign"]}})
    result = rack.run(*(argument.format(**names) for argument in arguments))
    rack.admin.delete(NODES, names["foreign"])
    assert result.exit_code == code, result.output
    assert words.format(**names) in result.stderr
    assert "Traceback" not in result.stderr
    assert [rack.filed(name) for name in rack.names] == [[]] * len(rack.names)


def test_a_server_whose_node_was_deleted_can_be_booted_anew_and_nothing_else(rack: RackOfNodes) -> None:
    name = rack.add(node=False)
    moment = "2026-01-02T12:00:00.000000Z"
    order = {"id": "o1", "reason": "FirstBoot", "orderedTime": moment, "attempt": 1}
    settled = {"order": order, "readyTime": moment}
    rack.admin.apply_status(Server, name, settled, manager="provisioner-boot-controller")
    for command in (["drain", name], ["hold", name, "-m", "its fan"]):
        refused = rack.run(*command)
        assert refused.exit_code == 1
        assert f"the Node of Server {name} was deleted: restart its kubelet, or have it booted" in refused.stderr
    rack.done("reboot", name)
    ((requestor,),) = [m.spec.requestors for m in rack.filed(name)]
    assert requestor.action == "Reboot"


def test_an_image_for_another_architecture_is_refused(rack: RackOfNodes) -> None:
    name = rack.add()
    rack.admin.create(of(Image), image(rack.prefix, architecture="arm64"))
    result = rack.run("reimage", name, "--image", rack.prefix)
    assert (result.exit_code, f"is for arm64, and {name} is not" in result.stderr) == (1, True)
    rack.admin.delete(of(Image), rack.prefix)


def test_no_access_names_its_remedy(tmp_path: Path, rack: RackOfNodes) -> None:
    rack.kubeconfig = tmp_path / "none"
    result = rack.run("reboot", "r01-u01")
    assert result.exit_code == 1
    assert "try: name a kubeconfig" in result.stderr


def entry(second: int, phase: str, reason: str, message: str) -> dict[str, str]:
    return {"time": f"2026-01-01T12:00:{second:02d}.000000Z", "phase": phase, "reason": reason, "message": message}


def test_who_waits_is_told_each_step_once_and_the_end(rack: RackOfNodes, capsys: pytest.CaptureFixture[str]) -> None:
    name = rack.add()
    asked = entry(0, "Waiting", "Requested", "alice wants it")
    blocker = {"kind": "Pod", "name": "ml/train", "message": "is a job", "sinceTime": "2026-01-01T12:00:00Z"}
    succeeded = {
        "type": "Succeeded",
        "status": "True",
        "reason": "Done",
        "message": "boot b runs the image",
        "lastTransitionTime": "2026-01-01T12:00:09Z",
    }
    steps = iter(
        [
            {"phase": "Waiting", "timeline": [asked], "blockers": [blocker]},
            {"phase": "Waiting", "timeline": [asked], "blockers": [blocker]},
            {"phase": "Claiming", "timeline": [asked, entry(3, "Claiming", "Claimed", "it is idle")]},
            {
                "phase": "Completed",
                "timeline": [asked, entry(3, "Claiming", "Claimed", "it is idle")],
                "conditions": [succeeded],
            },
        ]
    )
    rack.done("reboot", name)
    (maintenance,) = rack.filed(name)
    filed = Filed(server=name, maintenance=maintenance, requestor=maintenance.spec.requestors[0], joined=False)

    def executor_goes_on(_seconds: float) -> None:
        rack.executor_says(f"{name}-1", **next(steps))

    assert waiting.wait_for(rack.admin, [filed], timeout_seconds=60, sleep=executor_goes_on) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"12:00:00  {name}  Waiting     Requested: alice wants it",
        f"          {name}  Waiting     waits for Pod ml/train: is a job",
        f"12:00:03  {name}  Claiming    Claimed: it is idle",
        f"node/{name} completed (Maintenance {name}-1): boot b runs the image",
    ]


@pytest.mark.parametrize(
    ("action", "phase", "code", "words"),
    [
        ("reboot", "Failed", 4, "failed"),
        ("reboot", "Cancelled", 4, "cancelled"),
        ("drain", "Drained", 0, "drained"),
        ("reboot", "Drained", 5, "not done within the time"),
    ],
)
def test_the_exit_code_says_how_it_ended(rack: RackOfNodes, action: str, phase: str, code: int, words: str) -> None:
    name = rack.add()
    rack.done(action, name)
    rack.executor_says(f"{name}-1", phase=phase)
    if phase in ("Failed", "Cancelled"):
        (maintenance,) = rack.filed(name)
        filed = Filed(server=name, maintenance=maintenance, requestor=maintenance.spec.requestors[0], joined=False)
        assert waiting.wait_for(rack.admin, [filed], timeout_seconds=60) == code
    else:
        result = rack.run(action, name, "--wait", "--timeout", "1s")
        assert (result.exit_code, words in result.output) == (code, True), result.output


def test_who_waits_for_a_deleted_maintenance_is_told(rack: RackOfNodes, capsys: pytest.CaptureFixture[str]) -> None:
    name = rack.add()
    rack.done("reboot", name)
    (maintenance,) = rack.filed(name)
    rack.admin.delete(of(Maintenance), maintenance.name)
    filed = Filed(server=name, maintenance=maintenance, requestor=maintenance.spec.requestors[0], joined=False)
    assert waiting.wait_for(rack.admin, [filed], timeout_seconds=60) == 4
    assert "was deleted" in capsys.readouterr().out


def test_names_are_completed_by_kubectl_itself(rack: RackOfNodes, binaries: Binaries) -> None:
    first, second = rack.add(), rack.add()
    root = Path(__file__).parents[2]
    environment = {"PATH": f"{root / 'bin'}:/usr/local/bin:/usr/bin:/bin", "KUBECONFIG": str(rack.kubeconfig)}
    home = {"HOME": str(Path.home())}
    kubectl = binaries.kubectl
    words = ["__complete", "provision", "reboot", first, rack.prefix]

    def names() -> str:
        ran = subprocess.run([str(kubectl), *words], capture_output=True, text=True, check=True, env=environment | home)
        return ran.stdout

    until(lambda: names().splitlines()[0] == second)  # none, where the API server takes longer than a second
    assert first not in names()
