"""A real Slurm by its real slurmrestd: jobs seen, warned, requeued and cancelled; nodes drained and resumed."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api.machinery.errors import Retryable
from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.pools.pool_settings import SlurmJobs
from provisioner.api.servers.server import Server, ServerSpec
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import SECRETS
from provisioner.jobs.cluster_workloads import ClusterWorkloads
from provisioner.jobs.model.work import Job, Work
from tests.cluster.fake_events import FakeEvents
from tests.jobs.pod_samples import pool
from tests.jobs.slurm_site import PREFIX, SlurmSite

REASON = "provisioner: r01-u01-1"
SERVER = Server(metadata=ObjectMeta(name="r01-u01"), spec=ServerSpec(boot_mac_address="52:54:00:00:00:01"))
NODE = "s-r01-u01"
# A job that is requeued is waited for by the clock, which must not hold the other tests up.
OTHER_SERVER = Server(metadata=ObjectMeta(name="r01-u04"), spec=ServerSpec(boot_mac_address="52:54:00:00:00:04"))
OTHER_NODE = "s-r01-u04"
FOREVER = "while true; do sleep 0.1; done"


class Desk:
    """The workloads of one pool whose Slurm is the real one."""

    def __init__(self, cluster: Cluster, slurm: SlurmSite, namespace: str, **settings: Any) -> None:
        self.now = datetime.now(UTC)
        self.slurm = slurm
        self.pool = self.pool_with(**settings)
        self.workloads = ClusterWorkloads(cluster, FakeEvents(), namespace=namespace, now=lambda: self.now)

    def pool_with(self, **settings: Any) -> NodePool:
        given = {"url": self.slurm.url, "credentials_name": "slurm", "node_name_prefix": PREFIX} | settings
        return pool(slurm=SlurmJobs(**given))

    def look(self) -> Work:
        return self.workloads.look(SERVER, self.pool)

    def wait_for(self, what: Callable[[Work], bool]) -> Work:
        """Looks until it is so."""
        deadline = time.monotonic() + 180
        while not what(work := self.look()):
            assert time.monotonic() < deadline, work
            time.sleep(0.1)
        return work


@pytest.fixture
def desk(cluster: Cluster, slurm: SlurmSite, unique: str) -> Desk:
    assert slurm.login is not None
    write_secret(cluster, unique, username=slurm.login.username, token=slurm.login.token)
    return Desk(cluster, slurm, unique)


def write_secret(cluster: Cluster, namespace: str, **data: str) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, manager="test")
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"name": "slurm", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}, manager="test")


def test_an_idle_node_is_idle(desk: Desk) -> None:
    work = desk.look()
    assert work.is_idle, work
    assert (work.slurm_state, work.slurm_reason) == ("IDLE", None)


def test_a_job_whose_name_is_no_text_is_seen_and_hides_no_other(desk: Desk, slurm: SlurmSite) -> None:
    for name in ("\udcff\udce9", "train"):
        slurm.wait_for_job(slurm.submit(FOREVER, "-J", name, "-w", NODE, "-n1"), "RUNNING")
    work = desk.wait_for(lambda work: len(work.jobs) == 2)
    shared = desk.workloads.look(SERVER, desk.pool, fresh=False)
    assert [job.name for job in shared.jobs] == [job.name for job in work.jobs]
    assert any("(train)" in job.message for job in work.jobs)


def test_what_all_servers_share_says_what_a_look_of_ones_own_says(desk: Desk, slurm: SlurmSite) -> None:
    slurm.wait_for_job(slurm.submit(FOREVER, "-N2", "--exclusive"), "RUNNING")
    work = desk.wait_for(lambda work: len(work.jobs) == 1)
    shared = desk.workloads.look(SERVER, desk.pool, fresh=False)
    assert [(job.name, job.servers) for job in shared.jobs] == [(job.name, job.servers) for job in work.jobs]
    assert desk.workloads.look(OTHER_SERVER, desk.pool, fresh=False).is_idle
    assert desk.workloads.close(OTHER_SERVER, desk.pool, REASON) is not None
    assert desk.workloads.look(OTHER_SERVER, desk.pool, fresh=False).slurm_reason == REASON


def test_a_running_job_is_seen_with_all_its_servers(desk: Desk, slurm: SlurmSite) -> None:
    job = slurm.submit(FOREVER, "-J", "train", "-w", "s-r01-u0[1-3]", "-N3", "-t", "30")
    slurm.wait_for_job(job, "RUNNING")
    work = desk.wait_for(lambda work: "running" in str(work.jobs))
    (found,) = work.jobs
    assert found.began is not None
    assert abs(found.began - desk.now) < timedelta(minutes=1)
    assert replace(found, qos=None) == Job(
        kind="SlurmJob",
        name=job,
        servers=("r01-u01", "r01-u02", "r01-u03"),
        message=f"Slurm job {job} (train) of root is running on s-r01-u[01-03]",
        began=found.began,
        ends=found.began + timedelta(minutes=30),
        partition="main",
    )
    assert not work.is_idle
    assert work.free == 0.0, "of a single node Slurm does not say it"
    assert desk.workloads.look(SERVER, desk.pool, fresh=False).free == 0.75


def test_a_job_without_a_time_limit_has_no_end(desk: Desk, slurm: SlurmSite) -> None:
    slurm.wait_for_job(slurm.submit(FOREVER, "-w", NODE, "-t", "UNLIMITED"), "RUNNING")
    (found,) = desk.wait_for(lambda work: len(work.jobs) == 1).jobs
    assert found.began is not None
    assert found.ends is None


def test_jobs_that_ended_are_told_with_how_they_did(desk: Desk, slurm: SlurmSite) -> None:
    began = datetime.now(UTC) - timedelta(seconds=2)
    runs = slurm.folder / "runs"
    runs.unlink(missing_ok=True)
    scripts = {"COMPLETED": "true", "FAILED": "exit 3", "CANCELLED": f"touch {runs}; {FOREVER}"}
    jobs = {state: slurm.submit(script, "-J", state, "-w", NODE, "-n1") for state, script in scripts.items()}
    slurm.wait_for(runs.exists, "a script that can be sent a signal")
    slurm.command("scancel", jobs["CANCELLED"])
    for state, job in jobs.items():
        slurm.wait_for_job(job, state)
    desk.wait_for(lambda work: work.is_idle)
    desk.now = datetime.now(UTC) + timedelta(seconds=1)
    assert desk.workloads.look(SERVER, desk.pool, fresh=False).free == 1.0
    keys = {f"Slurm job {job}" for job in jobs.values()}
    ended = desk.workloads.ended(desk.pool, [SERVER.name], began)
    told = {job.name: job for job in ended if job.key in keys}
    assert {name: (job.reason, job.succeeded, job.exit_code) for name, job in told.items()} == {
        "COMPLETED": ("COMPLETED", True, 0),
        "FAILED": ("FAILED", False, 3),
        "CANCELLED": ("CANCELLED", False, told["CANCELLED"].exit_code),
    }
    assert told["CANCELLED"].signal == 15
    assert all(began < job.ended <= desk.now and job.servers == (SERVER.name,) for job in told.values())
    assert keys.isdisjoint(job.key for job in desk.workloads.ended(desk.pool, [OTHER_SERVER.name], began))


def test_a_job_in_its_prolog_and_one_in_its_epilog_are_seen(desk: Desk, slurm: SlurmSite) -> None:
    (slurm.folder / "hold-prolog").touch()
    (slurm.folder / "hold-epilog").touch()
    job = slurm.submit("true", "-w", NODE)
    slurm.wait_for(lambda: begun(slurm, "in-prolog") == job, "the prolog")
    work = desk.look()
    assert [found.name for found in work.jobs] == [job]
    assert not work.is_idle
    (slurm.folder / "hold-prolog").unlink()
    slurm.wait_for(lambda: begun(slurm, "in-epilog") == job, "the epilog")
    work = desk.look()
    assert "is completing (its epilog included)" in work.jobs[0].message
    assert [found.name for found in work.jobs] == [job]
    assert not work.is_idle
    (slurm.folder / "hold-epilog").unlink()
    desk.wait_for(lambda work: work.is_idle)


def begun(slurm: SlurmSite, which: str) -> str:
    """The job whose prolog or epilog ran last."""
    path = slurm.folder / which
    return path.read_text().strip() if path.exists() else ""


def test_a_suspended_job_is_seen(desk: Desk, slurm: SlurmSite) -> None:
    job = slurm.submit(FOREVER, "-w", NODE)
    slurm.wait_for_job(job, "RUNNING")
    slurm.command("scontrol", "suspend", job)
    work = desk.look()
    assert [found.name for found in work.jobs] == [job]
    assert "is suspended" in work.jobs[0].message


def test_a_job_that_is_planned_is_seen_until_the_node_is_drained(desk: Desk, slurm: SlurmSite) -> None:
    running = slurm.submit(FOREVER, "-w", NODE, "-n4")
    slurm.wait_for_job(running, "RUNNING")
    planned = slurm.submit("true", "-w", NODE, "-n4")
    work = desk.wait_for(lambda work: len(work.jobs) == 2)
    assert [found.name for found in work.jobs] == [running, planned]
    assert "is planned to start here" in work.jobs[1].message
    desk.workloads.close(SERVER, desk.pool, REASON)
    assert [found.name for found in desk.look().jobs] == [running]


def test_a_drain_lets_jobs_run_and_the_release_lifts_it(desk: Desk, slurm: SlurmSite) -> None:
    job = slurm.submit(FOREVER, "-w", NODE)
    slurm.wait_for_job(job, "RUNNING")
    for _ in range(2):
        drained = desk.workloads.close(SERVER, desk.pool, REASON)
        assert drained is not None
        assert (drained.node, drained.reason, drained.ours) == (NODE, REASON, True)
    assert "RUNNING" in slurm.job(job)["job_state"]
    work = desk.look()
    assert work.slurm_reason == REASON
    assert "DRAIN" in str(work.slurm_state)
    assert not desk.workloads.reopen(NODE, "provisioner: r01-u01-2", desk.pool)
    assert "DRAIN" in slurm.node(NODE)[0]
    assert desk.workloads.reopen(NODE, REASON, desk.pool)
    assert "DRAIN" not in slurm.node(NODE)[0]
    assert not desk.workloads.reopen(NODE, REASON, desk.pool)


@pytest.mark.parametrize("state", ["drain", "fail"])
def test_somebody_elses_drain_is_neither_overwritten_nor_lifted(desk: Desk, slurm: SlurmSite, state: str) -> None:
    slurm.command("scontrol", "update", f"nodename={NODE}", f"state={state}", "reason=bad DIMM, do not touch")
    before = slurm.node(NODE)
    drained = desk.workloads.close(SERVER, desk.pool, REASON)
    assert drained is not None
    assert (drained.reason, drained.ours) == ("bad DIMM, do not touch", False)
    assert not desk.workloads.reopen(NODE, REASON, desk.pool)
    assert slurm.node(NODE) == before


def test_jobs_that_are_spared_go_on(desk: Desk, slurm: SlurmSite) -> None:
    job = slurm.submit(FOREVER, "-w", NODE)
    slurm.wait_for_job(job, "RUNNING")
    (held,) = desk.workloads.evict(SERVER, desk.pool, spare=("SlurmJob",), force=False)
    assert (held.kind, held.name) == ("SlurmJob", job)
    assert held.message.endswith("it is not interrupted")
    assert "RUNNING" in slurm.job(job)["job_state"]


def test_a_job_that_may_be_requeued_is_requeued_and_its_processes_are_waited_for(desk: Desk, slurm: SlurmSite) -> None:
    job = slurm.submit(FOREVER, "--requeue", "-w", OTHER_NODE)
    slurm.wait_for_job(job, "RUNNING")
    desk.workloads.close(OTHER_SERVER, desk.pool, REASON)
    held = desk.workloads.evict(OTHER_SERVER, desk.pool, spare=(), force=False)
    slurm.wait_for_job(job, "PENDING")
    assert slurm.job(job)["restart_cnt"] == 1
    assert slurm.node(OTHER_NODE)[1] == REASON
    assert "processes may take until" in held[-1].message
    assert not desk.workloads.look(OTHER_SERVER, desk.pool).is_idle
    desk.now += timedelta(minutes=1)
    assert desk.workloads.evict(OTHER_SERVER, desk.pool, spare=(), force=False) == ()
    assert desk.workloads.look(OTHER_SERVER, desk.pool).is_idle
    assert desk.workloads.reopen(OTHER_NODE, REASON, desk.pool)
    slurm.wait_for(lambda: slurm.node(OTHER_NODE)[0] == "IDLE", "the node to be idle")


def test_a_job_that_may_not_be_requeued_is_cancelled_and_waited_for(desk: Desk, slurm: SlurmSite) -> None:
    (slurm.folder / "hold-epilog").touch()
    job = slurm.submit(FOREVER, "--no-requeue", "-w", NODE)
    slurm.wait_for_job(job, "RUNNING")
    desk.workloads.close(SERVER, desk.pool, REASON)
    desk.workloads.evict(SERVER, desk.pool, spare=(), force=False)
    slurm.wait_for_job(job, "CANCELLED")
    slurm.wait_for(lambda: begun(slurm, "in-epilog") == job, "the epilog")
    (held,) = desk.workloads.evict(SERVER, desk.pool, spare=(), force=False)
    assert (held.kind, held.name) == ("SlurmJob", job)
    assert "is completing" in held.message
    (slurm.folder / "hold-epilog").unlink()
    desk.wait_for(lambda work: work.is_idle)
    assert desk.workloads.evict(SERVER, desk.pool, spare=(), force=False) == ()


def test_on_somebody_elses_drained_node_jobs_are_cancelled_and_its_state_stays(desk: Desk, slurm: SlurmSite) -> None:
    job = slurm.submit(FOREVER, "--requeue", "-w", NODE)
    slurm.wait_for_job(job, "RUNNING")
    slurm.command("scontrol", "update", f"nodename={NODE}", "state=drain", "reason=bad DIMM")
    desk.workloads.evict(SERVER, desk.pool, spare=(), force=True)
    slurm.wait_for_job(job, "CANCELLED")
    assert slurm.node(NODE)[1] == "bad DIMM"
    assert "DOWN" not in slurm.node(NODE)[0]


def test_the_steps_of_a_job_get_the_pools_signal_once_and_its_script_does_not(desk: Desk, slurm: SlurmSite) -> None:
    got = slurm.folder / "got"
    step = f"trap 'echo USR1 >>{got}' USR1; touch {got}; {FOREVER}"
    (slurm.folder / "step").write_text(step)
    job = slurm.submit(f"srun -n1 sh {slurm.folder}/step", "-w", NODE)
    slurm.wait_for(got.exists, "the step to run")
    deadline = desk.now + timedelta(hours=1)
    signalling = desk.pool_with(signal="USR1")
    for _ in range(2):
        assert desk.workloads.warn(SERVER, signalling, deadline, "image gpu-2") == 1
    slurm.wait_for(lambda: got.read_text() != "", "the signal")
    time.sleep(0.5)
    assert got.read_text() == "USR1\n"
    found = slurm.job(job)
    assert "RUNNING" in found["job_state"]
    assert found["admin_comment"].startswith("provisioner: ends at 20")


def test_a_comment_of_an_administrator_stays_when_a_job_is_warned(desk: Desk, slurm: SlurmSite) -> None:
    job = slurm.submit(FOREVER, "-w", NODE)
    slurm.wait_for_job(job, "RUNNING")
    slurm.command("scontrol", "update", f"jobid={job}", "admincomment=ask Bob")
    for hours in (2, 1):
        assert desk.workloads.warn(SERVER, desk.pool, desk.now + timedelta(hours=hours), "") == 1
    comment = slurm.job(job)["admin_comment"]
    assert comment.startswith("ask Bob; provisioner: ends at ")
    assert comment.count("provisioner:") == 1


def test_what_is_no_signal_is_never_sent_for_slurm_would_cancel_the_job(desk: Desk, slurm: SlurmSite) -> None:
    job = slurm.submit(FOREVER, "-w", NODE)
    slurm.wait_for_job(job, "RUNNING")
    with pytest.raises(Retryable, match="is 'NOSUCH', no signal that warns a job"):
        desk.workloads.warn(SERVER, desk.pool_with(signal="NOSUCH"), desk.now + timedelta(hours=1), "")
    assert "RUNNING" in slurm.job(job)["job_state"]


def test_a_slurm_that_cannot_be_asked_is_not_idle_and_holds_a_drain(desk: Desk, slurm: SlurmSite) -> None:
    away = desk.pool_with(url="http://127.0.0.1:1")
    work = desk.workloads.look(SERVER, away)
    assert not work.is_idle
    assert work.unknown[0].startswith("slurmrestd at http://127.0.0.1:1 does not answer")
    (held,) = desk.workloads.evict(SERVER, away, spare=(), force=True)
    assert held.kind == "Slurm"
    for act in (
        lambda: desk.workloads.close(SERVER, away, REASON),
        lambda: desk.workloads.reopen(NODE, REASON, away),
        lambda: desk.workloads.warn(SERVER, away, desk.now, ""),
    ):
        with pytest.raises(Retryable, match="does not answer"):
            act()


def test_a_node_that_slurm_does_not_know_is_not_idle(desk: Desk) -> None:
    stranger = desk.pool_with(node_name_prefix="")
    (said,) = desk.workloads.look(SERVER, stranger).unknown
    assert said.startswith("Slurm has no node r01-u01: add it to slurm.conf, correct spec.jobs.slurm.nodeNamePrefix")
    with pytest.raises(Retryable, match="Slurm has no node r01-u01"):
        desk.workloads.close(SERVER, stranger, REASON)
    assert not desk.workloads.reopen("r01-u01", REASON, stranger)


def test_a_token_that_is_refused_is_told_with_the_remedy_and_never_shown(
    desk: Desk, cluster: Cluster, unique: str
) -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJyb290In0.c2VjcmV0"
    write_secret(cluster, unique, username="root", token=token)
    (said,) = desk.look().unknown
    assert f"put a token of one of Slurm's operators into Secret {unique}/slurm" in said
    assert token not in said


def test_a_secret_that_is_absent_or_incomplete_is_told(desk: Desk, cluster: Cluster, unique: str) -> None:
    write_secret(cluster, unique, username="root")
    cluster.delete(SECRETS, "slurm", namespace=unique)
    assert f"Secret {unique}/slurm does not exist" in desk.look().unknown[0]
    write_secret(cluster, unique, username="root")
    assert f"Secret {unique}/slurm lacks username or token" in desk.look().unknown[0]
