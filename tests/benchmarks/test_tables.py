"""Each benchmark's table and goals are built from results that were made up, so that no run ends in a KeyError."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final

import pytest

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.servers.boot_stage import BootStage
from provisioner.api.servers.server import ServerStatus
from provisioner.api.servers.server_status import BootProgress, JoinStatus, StageTime
from provisioner.rollout.simulate.figures import Delay
from provisioner.rollout.simulate.setup import DAY
from tests.benchmarks import (
    attestation_bench,
    bmc_bench,
    boot_bench,
    credentials_bench,
    dhcp_bench,
    evpn_bench,
    hung_bench,
    kexec_bench,
    layers_bench,
    network_bench,
    register_bench,
    rollout_bench,
    rollout_scale_bench,
    scale_bench,
    scripts_bench,
    swarm_bench,
    tpm_boot_bench,
    vpc_bench,
    web_bench,
)
from tests.benchmarks.__main__ import NAMES
from tests.benchmarks.dhcp.perfdhcp import Load
from tests.benchmarks.dhcp.race import STEADY_RATE, find_knee
from tests.benchmarks.dhcp.race import Result as Race
from tests.benchmarks.kexec_drive import Reboot, stages_since
from tests.benchmarks.record import Check, Goal
from tests.benchmarks.rollout_traces import make_trace

COMMAND: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
THREE: Final = [1.0, 1.5, 2.0]

Made = tuple[str, Sequence[Check]]


def status_of_a_joined_server(*heard: BootStage) -> ServerStatus:
    """As the recorder leaves it: that somebody waited for the join configuration is not kept."""
    moments = {stage: rfc3339(COMMAND + timedelta(seconds=1 + number)) for number, stage in enumerate(heard)}
    before = StageTime(stage="Root", time=rfc3339(COMMAND - timedelta(hours=1)))
    times = tuple(StageTime(stage=stage, time=moment) for stage, moment in moments.items())
    join = JoinStatus(fetched_time=rfc3339(COMMAND + timedelta(seconds=20)))
    return ServerStatus(progress=BootProgress(stage="System", stage_times=(before, *times)), join=join)


def a_reboot(method: Any, *heard: BootStage) -> Reboot:
    moments = stages_since(COMMAND, status_of_a_joined_server(*heard))
    moments |= {"Ready": COMMAND + timedelta(seconds=30), "Completed": COMMAND + timedelta(seconds=31)}
    seconds = {stage: (moment - COMMAND).total_seconds() for stage, moment in moments.items()}
    return Reboot(method, 2.0, seconds, dict(seconds))


def kexec(*heard: BootStage) -> Made:
    by_firmware = a_reboot("Reboot", "Firmware", "IPXE", *heard)
    found = {"Reboot": 3 * [by_firmware], "Kexec": 3 * [a_reboot("Kexec", *heard)]}
    return kexec_bench.table(found, 1024, "tcg"), kexec_bench.check_goals(found)


def tpm_boot() -> Made:
    runs = 3 * [a_reboot("Reboot", "Firmware", "IPXE", "Stage1", "System")]
    return tpm_boot_bench.table(runs, runs, 1024, "tcg"), tpm_boot_bench.check_goals(runs, runs)


def attestation() -> Made:
    seconds = {contender: [0.002, 0.003, 0.004] for contender in attestation_bench.CONTENDERS}
    return attestation_bench.table(seconds, seconds, 3, 200), attestation_bench.check_goals(seconds)


def bmc() -> Made:
    return bmc_bench.table(dict.fromkeys(bmc_bench.CONTENDERS, THREE), 15.0), []


def boot() -> Made:
    phases = {"firmware": 5.0, "iPXE": 3.0, "stage-1": 0.2, "root": 3.0, "system": 6.0, "kubelet": 6.0, "total": 24.0}
    found = [
        boot_bench.Measured(recipe, 120_000_000, "tcg", 3 * [phases], THREE, THREE, 3 * [THREE])
        for recipe in boot_bench.RECIPES
    ]
    return boot_bench.table(found, "UEFI", 1024), []


def credentials() -> Made:
    writes = credentials_bench.Writes()
    writes.rounds, writes.spent = [[0.001, 0.002], [0.003], [0.004]], 0.5
    found = [credentials_bench.Size(100, 1500, writes, writes)]
    return credentials_bench.table(found, ["| `provisioner authorizer` | 1 ms, 2 ms | 3/s | 4 µs |"]), (
        credentials_bench.check_goals(found)
    )


def load(completed: int, offered: int = 500) -> Load:
    return Load(offered, 5.0, 1000, completed, 0.1, 1.9)


def dhcp(steady: int = 1000) -> Made:
    fast, slow = Race((load(1000),), load(500), load(steady)), Race((load(1000),), load(500), None)
    results = {"ours, 1 worker": 3 * [fast], "Kea, 1 thread": 3 * [fast], "dnsmasq": 3 * [slow]}
    return dhcp_bench.table(results, 5), dhcp_bench.check_goals(results)


def evpn() -> Made:
    return evpn_bench.table([evpn_bench.Result(5, THREE, THREE, 5, 1, 3500, 600, 16.0, 20.0)]), []


def hung() -> Made:
    runs = 3 * [hung_bench.Run([3.01], [3.07], 0, 100)]
    results = dict.fromkeys(hung_bench.CASES, runs)
    return hung_bench.table(results, 100), hung_bench.check_goals(results)


def layers() -> Made:
    found = {name: 3 * [layers_bench.Boot(1.0, 2.0, 3.0)] for name in ("one", "four", "sixteen")}
    return layers_bench.table(found, dict.fromkeys(found, 120.0), 1536), []


def network() -> Made:
    results = [network_bench.Result(10, 10, THREE, THREE, THREE, THREE)]
    return network_bench.table(results), network_bench.check_goals(results)


def register() -> Made:
    run = {"register": 2.0, "bare": 1.0, "again": 0.5, "register processor": 1.0, "bare processor": 0.5}
    results = {1000: 3 * [run], 2000: 3 * [{**run, "register": 5.0}]}
    return register_bench.table(results), register_bench.check_goals(results)


def rollout() -> Made:
    case = rollout_bench.Case("one-gpu", 4, 0.5, (124.0,))
    found = {case: [rollout_bench.run_case(case, 124.0)]}
    decisions = rollout_bench.measure_decisions(servers=200, times=1)
    return rollout_bench.table(found), rollout_bench.check_goals(found, decisions)


def rollout_scale() -> Made:
    asked = Counter({("create", "maintenances"): 1000})
    one = rollout_scale_bench.Result(
        1000, 100, 250, 100.0, 0.3, 151.0, THREE, THREE, asked, Counter(), Counter({("patch", "servers/status"): 90})
    )
    results = {1000: [one, one, one]}
    return rollout_scale_bench.table(results, "etcd 3.6.8"), rollout_scale_bench.check_goals(results)


def scale() -> Made:
    def one(servers: int) -> scale_bench.Result:
        processor = {"rack register": 1.0, "kube-apiserver": 2.0, "etcd": 0.5, "controller": 1.0}
        calls = Counter({("controller", "GET", "nodes"): 11, ("register", "APPLY", "servers"): 0})
        rates = {"apply": 300.0, "status": 250.0, "create": 500.0}
        return scale_bench.Result(servers, rates, 25, 24, 29, 28, 0.2, 104, 2.9, 2.2, calls, processor)

    results = {servers: 3 * [one(servers)] for servers in (1000, 2000, 5000)}
    return scale_bench.table(results), scale_bench.check_goals(results)


def scripts() -> Made:
    written = scripts_bench.Written(872, 2.1, 1.0, THREE, [0.001] * 100)
    return scripts_bench.table({"ours": THREE, "busy": THREE, "bound": THREE}, written, 5), []


def swarm() -> Made:
    bench: Any = SimpleNamespace(
        options=SimpleNamespace(megabits=20, servers=[4, 8]),
        floors=THREE,
        size=12_000_000,
        one=SimpleNamespace(megabits=80),
        cache=SimpleNamespace(megabits=640),
        table={("boot host alone", 4): swarm_bench.Measured(THREE, THREE, THREE)},
        stories=["| cache lies | 14.5 | 2.43 | named by 8 of 8 servers |"],
    )
    return swarm_bench.render(bench), []


def vpc() -> Made:
    one = vpc_bench.Result(
        250, 18.3, 7.6, Counter({("PATCH", "servers"): 2}), THREE, Counter({("GET", "vpcs"): 3}), 104, 0.2, 7500
    )
    results = {250: 3 * [one]}
    return vpc_bench.table(results), vpc_bench.check_goals(results)


def web() -> Made:
    storms = [web_bench.Storm(viewers, 0.4, 16.7, 1.0, 10, 549_252, 55_207) for viewers in (1, 50)]
    runs = [
        web_bench.Figures(
            10_000, listed, 6.0, 72.0, 145_638, 1_504_218, 2.4, THREE, THREE, THREE, THREE, [], THREE, THREE, THREE,
            12.5, storms, 648.0, 273.0,
        )
        for listed in (None, (0.2, 5000))
    ]  # fmt: skip
    tables = [web_bench.table(3 * [run]) for run in runs]
    return "\n".join(tables), [check for run in runs for check in web_bench.check_goals(3 * [run])]


def kexec_as_the_status_tells_it() -> Made:
    return kexec("Stage1", "Root", "System")


MADE: Final[dict[str, Callable[[], Made]]] = {
    "dhcp": dhcp, "scripts": scripts, "register": register, "boot": boot, "tpm_boot": tpm_boot,
    "kexec": kexec_as_the_status_tells_it, "layers": layers, "scale": scale, "hung": hung, "bmc": bmc,
    "rollout": rollout, "rollout_scale": rollout_scale, "network": network, "vpc": vpc, "evpn": evpn, "swarm": swarm,
    "web": web, "attestation": attestation, "credentials": credentials,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_builds_its_table_and_checks_every_goal_that_it_declares(name: str) -> None:
    text, checks = MADE[name]()
    declared: dict[str, Goal] = importlib.import_module(f"tests.benchmarks.{name}_bench").GOALS
    assert {check.goal for check in checks} == set(declared.values())
    assert text.startswith("## ")
    columns = 0
    for line in text.splitlines():
        cells = line.count("|") if line.startswith("|") else 0
        assert cells == columns or not columns or not cells, f"another number of cells than the head: {line}"
        columns = cells


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_measures_nothing_on_a_busy_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE", raising=False)
    monkeypatch.setattr("os.getloadavg", lambda: (1.1, 0.0, 0.0))
    main = importlib.import_module(f"tests.benchmarks.{name}_bench").main
    with pytest.raises(SystemExit, match=rf"{name}_bench: the load average of the last minute is 1\.1.*FORCE=1"):
        main([])


def test_a_reboot_shows_when_the_join_configuration_was_handed_out() -> None:
    text, _ = kexec_as_the_status_tells_it()
    assert "| join configuration handed out | 20.0 (20.0 to 20.0) |" in text


def test_a_stage_of_the_boot_before_the_command_does_not_count() -> None:
    assert set(stages_since(COMMAND, status_of_a_joined_server("Stage1"))) == {"Stage1", "Kubelet"}


def test_a_stage_that_was_not_seen_of_a_reboot_has_no_figures() -> None:
    text, _ = kexec("Stage1", "Root")
    assert "| system starts | not seen in each reboot |" in text


def test_a_server_has_no_figure_at_a_rate_that_it_does_not_carry() -> None:
    text, _ = dhcp()
    dnsmasq = next(line for line in text.splitlines() if line.startswith("| dnsmasq"))
    assert dnsmasq.split(" | ")[3:6] == ["beyond its knee", "-", "-"]


def test_a_server_that_loses_exchanges_at_the_steady_rate_misses_the_goal_of_its_answers() -> None:
    assert [check.is_met for check in dhcp()[1]] == [False, True, True]
    assert [check.is_met for check in dhcp(steady=900)[1]] == [False, False, True]


@pytest.mark.parametrize("capacity", [160, 450, 600, 7_000])
def test_a_server_is_offered_the_steady_rate_only_within_its_knee(capacity: int) -> None:
    def offer(rate: int) -> Load:
        return Load(rate, 5.0, 5 * rate, 5 * min(rate, capacity), 0.1, 1.9)

    found = find_knee(offer, 2_000)
    assert capacity / 1.2 < found.knee <= capacity
    assert found.overload.wanted_per_second == pytest.approx(2 * found.knee, rel=0.02)
    assert (found.steady is not None) == (capacity > STEADY_RATE)


def test_the_dhcp_benchmark_refuses_short_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        dhcp_bench.main(["--seconds", "1"])
    assert "give --seconds 5 or more" in capsys.readouterr().err


def test_the_mixed_trace_lasts_until_the_last_rollout_is_given_up() -> None:
    assert make_trace("mixed", seed=1)[-1].submitted > 119 * DAY


def test_jobs_of_the_one_gpu_trace_run_for_as_long_as_those_that_were_measured_and_end_with_it() -> None:
    jobs = make_trace("one-gpu", seed=1)
    assert Counter(job.gpus for job in jobs) == {1: 6988, 2: 16, 4: 15, 8: 44}
    seconds = sorted(job.duration for job in jobs)
    for share, measured in ((0.1, 56), (0.25, 135), (0.5, 492), (0.75, 1914), (0.9, 6131), (0.99, 31 * 3600)):
        assert seconds[int(share * len(seconds))] == pytest.approx(measured, rel=0.02), share
    assert 100 * DAY < seconds[-1] < 145 * DAY
    assert max(job.submitted + job.duration for job in jobs) == pytest.approx(149 * DAY, abs=DAY)
    assert sum(job.submitted > 116 * DAY for job in jobs) > 0.99 * len(jobs)


@pytest.mark.parametrize("name", rollout_bench.MADE_UP)
def test_a_made_up_trace_is_the_same_for_a_seed_and_another_for_another(name: str) -> None:
    jobs = make_trace(name, seed=1)
    assert jobs == sorted(jobs, key=lambda job: job.submitted)
    assert jobs == make_trace(name, seed=1), "in each process"
    assert jobs != make_trace(name, seed=2)


def test_a_trace_from_a_file_is_measured_at_the_loads_that_are_asked_for() -> None:
    cases = rollout_bench.make_cases("/data/philly.csv", [70, 90], small=True)
    assert [case.name for case in cases] == ["philly, 64 servers, 70%", "philly, 64 servers, 90%"]
    assert [case.name for case in rollout_bench.make_cases("one-gpu", None, small=False)] == [
        "one-gpu, 64 servers, 50%",
        "one-gpu, 64 servers, 70%",
    ]


def test_a_rollout_that_did_not_end_misses_the_goals_about_its_makespan() -> None:
    figures: Any = SimpleNamespace(
        outcome=SimpleNamespace(policy="provisioner", interrupted=0), to_bound=None, to_reached=None,
        extra_share=0.0, closed_share=0.0, delay=Delay(0.0, 0.0),
    )  # fmt: skip
    case = rollout_bench.Case("mixed", 64, 0.5, (30.0,), ("provisioner",))
    checks = rollout_bench.check_goals({case: [[figures]]}, {})
    assert {check.goal for check in checks if not check.is_met} == {
        rollout_bench.GOALS["to_bound"],
        rollout_bench.GOALS["to_reached"],
    }


def test_no_rollout_makes_wide_jobs_wait_for_the_small_ones_that_it_steers() -> None:
    [figures] = rollout_bench.run_case(rollout_bench.Case("one-gpu", 16, 0.7, (128.0,), ("provisioner",)), 128.0)
    assert figures.to_bound is not None
    assert figures.to_bound <= rollout_bench.GOALS["to_bound"].limit
    assert figures.delay.mean <= rollout_bench.GOALS["later"].limit
    assert figures.delay.worst <= rollout_bench.GOALS["worst"].limit * 3600


def test_the_worst_day_counts_for_the_worst_delay_up_to_the_load_at_which_chance_outweighs_it() -> None:
    days: Any = [
        SimpleNamespace(
            outcome=SimpleNamespace(policy="provisioner", interrupted=0), to_bound=1.0, to_reached=1.0,
            extra_share=0.0, closed_share=0.0, delay=Delay(5.0, worst),
        )
        for worst in (60.0, 60.0, 7200.0)
    ]  # fmt: skip
    usual, crowded = (rollout_bench.Case("mixed", 64, load, (30.0,), ("provisioner",)) for load in (0.7, 0.9))
    found = {usual: [[day] for day in days], crowded: [[day] for day in days]}
    delays = [
        check for check in rollout_bench.check_goals(found, {})
        if check.goal in (rollout_bench.GOALS["later"], rollout_bench.GOALS["worst"])
    ]  # fmt: skip
    assert [(check.case, check.values, check.is_met) for check in delays] == [
        ("mixed, 64 servers, 70%, provisioner", (5.0, 5.0, 5.0), True),
        ("mixed, 64 servers, 70%, provisioner", (2.0,), False),
    ]


def test_the_look_of_an_agent_counts_the_programs_that_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([1.0, 1.25])
    monkeypatch.setattr(network_bench, "seconds_of_children", lambda: next(spent))
    monkeypatch.setattr(network_bench.time, "process_time", lambda: 0.0)
    monkeypatch.setattr(network_bench, "rack", FakeRack)
    monkeypatch.setattr(network_bench, "in_batches", lambda *_: 1.0)
    monkeypatch.setattr(network_bench, "by_pyroute2", lambda *_: 1.0)
    result = network_bench.Result(1, 2)
    network_bench.measure(result, 1)
    assert result.idle == [0.25]


class FakeRack:
    """A DPU that agrees with everything."""

    def __enter__(self) -> Any:
        agrees = SimpleNamespace(agrees=True, changes=0, problems=())
        dpu = SimpleNamespace(enforce=lambda _: agrees, in_domain=lambda *_: "", output=lambda *_: "")
        return SimpleNamespace(dpu=lambda _: dpu)

    def __exit__(self, *_: object) -> None:
        return
