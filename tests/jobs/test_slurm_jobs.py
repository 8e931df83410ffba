"""What Slurm's answers mean, in every shape that its versions give them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.jobs.slurm.hostlist import MAX_LETTERS, count, expand, includes
from provisioner.jobs.slurm.jobs import as_job, held_by_kill_wait, jobs_of_node, warned, with_requeue, with_warning
from provisioner.jobs.slurm.objects import SlurmJob, SlurmNode, read_job, read_node

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("gpu1", ("gpu1",)),
        ("gpu1,login1", ("gpu1", "login1")),
        ("gpu[001-003,7]", ("gpu001", "gpu002", "gpu003", "gpu7")),
        ("r[1-2]u[09-10]-x", ("r1u09-x", "r1u10-x", "r2u09-x", "r2u10-x")),
        ("a[1-2],b3", ("a1", "a2", "b3")),
    ],
)
def test_a_list_of_hosts_is_read(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names
    assert count(text) == len(names)
    assert all(includes(text, name) for name in names)
    for other in ("gpu01", "gpu0010", "gpu", "r3u09-x", "r1u9-x", "a12", ""):
        assert not includes(text, other)


def test_a_host_is_found_where_brackets_adjoin() -> None:
    assert [name for name in expand("r[0-1][8-11]") if not includes("r[0-1][8-11]", name)] == []
    assert not includes("r[0-1][8-11]", "r12")


@pytest.mark.parametrize(
    "text",
    [
        *("a[1", "a]1[", "a[x]", "a[3-1]", "a[]", "a[1-99999999]", "a[1-9999]b[1-9999]", "a[" + "0" * 20 + "]"),
        *("a[" + "0-65534," * 100 + "1]", "a[0-9]," * MAX_LETTERS),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_list_of_hosts_or_too_long_is_refused(text: str) -> None:
    for read in (expand, count, lambda text: includes(text, "a1")):
        with pytest.raises(ValueError, match=r"hosts|numbers|brackets"):
            read(text)


@pytest.mark.parametrize(
    ("version", "body", "state"),
    [
        ("22.05", {"state": "idle", "state_flags": ["DRAIN"]}, "IDLE+DRAIN"),
        ("23.02", {"state": ["IDLE", "DRAIN"]}, "IDLE+DRAIN"),
        ("by scontrol", {"state": "IDLE+DRAIN"}, "IDLE+DRAIN"),
        ("not responding", {"state": "down*", "state_flags": []}, "DOWN"),
    ],
)
def test_a_node_is_read_in_every_version(version: str, body: dict[str, Any], state: str) -> None:
    node = read_node({"name": "r01-u01", "reason": "x", **body})
    assert node.state == state
    assert not node.takes_jobs


def test_a_job_is_read_in_every_version() -> None:
    old = {"job_id": 7, "job_state": "RUNNING", "nodes": "r[1-2]", "user_name": "alice", "array_task_id": None}
    new = {
        "job_id": 7,
        "job_state": ["RUNNING"],
        "nodes": "r[1-2]",
        "user_name": "alice",
        "array_job_id": {"set": True, "infinite": False, "number": 0},
        "array_task_id": {"set": False, "infinite": False, "number": 0},
    }
    assert read_job(old) == read_job(new)
    assert read_job(old).is_placed_on("r2")
    task = new | {"array_job_id": {"set": True, "number": 5}, "array_task_id": {"set": True, "number": 0}}
    assert read_job(task).label == "5_0"


def no_val(number: int = 0, *, infinite: bool = False) -> dict[str, Any]:
    """A number as newer versions write it."""
    return {"set": not infinite, "infinite": infinite, "number": number}


BEGAN = datetime(2026, 1, 1, 11, 0, tzinfo=UTC)
RUNNING: dict[str, Any] = {"job_id": 7, "nodes": "s-r1", "partition": "gpu", "qos": "normal"}
TIMES = {
    "22.05": {"start_time": 1767265200, "end_time": 1767272400, "time_limit": 120, "job_state": "RUNNING"},
    "24.11": {
        "start_time": no_val(1767265200),
        "end_time": no_val(1767272400),
        "time_limit": no_val(120),
        "job_state": ["RUNNING"],
    },
}


@pytest.mark.parametrize("version", TIMES)
def test_when_a_job_began_and_by_when_it_ends_is_read_in_every_version(version: str) -> None:
    found = read_job(RUNNING | TIMES[version])
    assert (found.began, found.ends) == (BEGAN, BEGAN + timedelta(hours=2))
    told = as_job(found, "s-")
    assert (told.began, told.ends, told.partition, told.qos) == (found.began, found.ends, "gpu", "normal")


@pytest.mark.parametrize("limit", [None, 2**32 - 1, 2**32 - 2, no_val(infinite=True), no_val(2**32 - 1), "1-00:00:00"])
def test_a_job_without_a_time_limit_has_no_end_though_slurm_says_a_year(limit: Any) -> None:
    found = read_job(RUNNING | TIMES["24.11"] | {"time_limit": limit})
    assert (found.began, found.ends) == (BEGAN, None)


def test_the_time_of_a_suspended_job_stands_still() -> None:
    assert read_job(RUNNING | TIMES["24.11"] | {"job_state": ["SUSPENDED"]}).ends is None


def test_a_planned_job_has_not_begun() -> None:
    planned = read_job(RUNNING | TIMES["24.11"] | {"job_state": ["PENDING"], "scheduled_nodes": "s-r1", "nodes": ""})
    told = as_job(planned, "s-")
    assert (told.servers, told.began, told.ends) == (("r1",), None, None)


@pytest.mark.parametrize("odd", [0, -(10**18), 10**18, 1e300, float("nan"), "now", [], no_val(2**62)])
def test_a_time_that_is_none_is_not_known_and_hides_no_job(odd: Any) -> None:
    found = read_job(RUNNING | TIMES["24.11"] | {"start_time": odd, "end_time": odd})
    assert (found.began, found.ends, found.nodes) == (None, None, "s-r1")


@pytest.mark.parametrize(
    ("body", "free"),
    [
        ({"cpus": 64, "alloc_cpus": 16}, 0.75),
        ({"cpus": 64, "alloc_cpus": 16, "gres": "", "gres_used": ""}, 0.75),
        ({"cpus": 64, "alloc_cpus": 16, "gres": "gpu:h100:8(S:0-1)", "gres_used": "gpu:h100:6(IDX:0-3,5,7)"}, 0.25),
        ({"cpus": 64, "alloc_cpus": 16, "gres": "gpu:8,nic:2", "gres_used": "gpu:2,nic:2"}, 0.75),
        (
            {"cpus": 64, "alloc_cpus": 16, "gres": "gpu:a:4,gpu:b:4", "gres_used": "gpu:a:0(IDX:N/A),gpu:b:4(IDX:0-3)"},
            0.5,
        ),
        ({"cpus": 64, "alloc_cpus": 64, "gres": "gpu:8", "gres_used": "gpu:0"}, 0.0),
        ({"cpus": 64, "alloc_cpus": 16, "gres": "gpu:8"}, 0.75),
        ({"cpus": 64, "alloc_cpus": 99}, 0.0),
        ({"cpus": 64, "alloc_cpus": -99}, 1.0),
        ({"cpus": 0, "alloc_cpus": 0}, None),
        ({"cpus": 10**30, "alloc_cpus": "many", "gres": ["gpu:8"], "gres_used": {}}, None),
        ({"gres": "gpu:" + "9" * 5000, "gres_used": "gpu:1" * 5000}, None),
        ({}, None),
    ],
)
def test_how_much_of_a_node_is_free_is_read_from_what_slurm_says(body: dict[str, Any], free: float | None) -> None:
    assert read_node({"name": "s-r1", "state": ["MIXED"], **body}).free == free


def node(state: str = "IDLE", name: str = "s-r1") -> SlurmNode:
    return SlurmNode(name, tuple(state.split("+")), "")


def job(state: str, *, nodes: str = "", planned: str = "", comment: str = "") -> SlurmJob:
    return SlurmJob(7, "7", "train", "alice", tuple(state.split("+")), nodes, planned, True, True, comment)


@pytest.mark.parametrize(
    "state",
    [
        "RUNNING",
        "SUSPENDED",
        "RUNNING+CONFIGURING",
        "COMPLETED+COMPLETING",
        "CANCELLED+COMPLETING",
        "PENDING+COMPLETING",
    ],
)
def test_a_job_in_this_state_is_on_its_nodes(state: str) -> None:
    found = jobs_of_node(node("ALLOCATED"), [job(state, nodes="s-r[1-2]")], NOW)
    assert [one.label for one in found.running] == ["7"]
    assert found.unknown == ()


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED", "PENDING", "PREEMPTED"])
def test_a_job_in_this_state_is_not_on_its_nodes(state: str) -> None:
    found = jobs_of_node(node(), [job(state, nodes="s-r[1-2]")], NOW)
    assert (found.running, found.planned, found.unknown) == ((), (), ())


def test_a_job_of_another_node_is_none_of_this_one() -> None:
    assert jobs_of_node(node(), [job("RUNNING", nodes="s-r[2-3]")], NOW).running == ()


@pytest.mark.parametrize(("state", "planned"), [("IDLE+PLANNED", 1), ("IDLE+DRAIN", 0), ("DOWN", 0)])
def test_a_planned_job_counts_while_the_node_takes_jobs(state: str, planned: int) -> None:
    found = jobs_of_node(node(state), [job("PENDING", planned="s-r1")], NOW)
    assert len(found.planned) == planned
    assert found.unknown == ()


@pytest.mark.parametrize("state", ["ALLOCATED", "MIXED", "IDLE+COMPLETING", "MIXED+DRAIN", "IDLE+PLANNED"])
def test_a_node_that_slurm_calls_busy_without_showing_a_job_is_not_idle(state: str) -> None:
    assert len(jobs_of_node(node(state), [], NOW).unknown) == 1


def test_hosts_that_nobody_can_read_make_the_node_unknown_not_idle() -> None:
    (said,) = jobs_of_node(node(), [job("RUNNING", nodes="s-r[")], NOW).unknown
    assert said.startswith("Slurm job 7 runs on hosts that are not readable")


def test_servers_are_named_as_nodes_of_the_cluster() -> None:
    assert as_job(job("RUNNING", nodes="s-r[1-2]"), "s-").servers == ("r1", "r2")


def test_processes_of_a_job_that_we_requeued_are_waited_for_on_that_node_alone() -> None:
    requeued = job("PENDING", comment=with_requeue(job("RUNNING", comment="ask Bob"), "s-r1", NOW))
    assert requeued.admin_comment == "ask Bob; provisioner: requeued from s-r1 at 2026-01-01T12:00:00Z"
    (held,) = held_by_kill_wait(node("IDLE+DRAIN"), [requeued], NOW + timedelta(seconds=34))
    assert (held.kind, held.name) == ("SlurmJob", "7")
    assert held.message.endswith("was requeued; its processes may take until 2026-01-01T12:00:35Z to end here")
    assert held_by_kill_wait(node(), [requeued], NOW + timedelta(seconds=35)) == ()
    assert held_by_kill_wait(node(name="s-r2"), [requeued], NOW) == ()
    assert held_by_kill_wait(node(), [job("PENDING", comment="ask Bob")], NOW) == ()
    for garbled in ("2026-99-99T00:00:00Z", "2026-01-02T03:04:05", "soon"):
        comment = f"provisioner: requeued from {node().name} at {garbled}"
        assert held_by_kill_wait(node(), [job("PENDING", comment=comment)], NOW) == ()


def test_a_warning_replaces_the_one_before_and_nothing_else() -> None:
    first = job("RUNNING", comment=with_warning(job("RUNNING", comment="ask Bob"), NOW))
    assert warned(first, NOW)
    assert not warned(first, NOW + timedelta(hours=1))
    assert with_warning(first, NOW + timedelta(hours=1)) == "ask Bob; provisioner: ends at 2026-01-01T13:00:00Z"
    assert with_warning(job("RUNNING"), NOW) == "provisioner: ends at 2026-01-01T12:00:00Z"
