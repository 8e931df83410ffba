"""The metrics of a server with 8 H100, from the fake NVML; and every alert and every panel over them, by promtool."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.health.checks.gpu.xids import XIDS
from provisioner.node.machine.gpus import exposition
from provisioner.node.machine.gpus.kernel_log import KernelLog
from provisioner.node.machine.gpus.survey import survey
from provisioner.node.machine.gpus.watch import SteadySlowdowns
from tests.golden_files import assert_golden
from tests.node.gpus.fake_gpu_server import FakeGpuServer
from tests.tools import installed

DOCS = Path(__file__).parents[3] / "docs"
ALERTS = DOCS / "prometheus-alerts-gpus.yaml"
RULES = {rule["alert"]: rule for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}
PANELS = json.loads((DOCS / "dashboards" / "gpus.json").read_text())["panels"]
EXPRESSIONS = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
PODS = [
    {"namespace": "red", "pod": "train-0", "container": "main", "device": "GPU-00000000-aaaa-bbbb-cccc-0123456789ab"},
    {"namespace": "red", "pod": "train-0", "container": "main", "device": "GPU-00000001-aaaa-bbbb-cccc-0123456789ab"},
    {"namespace": "blue", "pod": "a", "container": "a", "device": "GPU-00000002-aaaa-bbbb-cccc-0123456789ab::0"},
    {"namespace": "blue", "pod": "b", "container": "b", "device": "GPU-00000002-aaaa-bbbb-cccc-0123456789ab::1"},
    {"namespace": "blue", "pod": "mig", "container": "main", "device": "MIG-7"},
    {"namespace": "blue", "pod": "elsewhere", "container": "main", "device": "GPU-of-another-server"},
]
"""Of one server: a pod with two GPUs, two that share one, one with a part of one."""


class Telemetry:
    """What the agent writes, minute by minute."""

    def __init__(self, server: FakeGpuServer) -> None:
        self.server = server
        self.slowdowns = SteadySlowdowns()
        self.log = KernelLog(str(server.root / "dev/kmsg"))
        self.state: dict[str, Any] = {}
        self.is_written = True
        self.text = ""

    def write(self, minute: int) -> str:
        """The library reads its answers once: the survey of a GPU that changes is changed here."""
        self.log.look()
        if self.is_written:
            read = survey(str(self.server.root / "usr/lib/libnvidia-ml.so.1"))
            reading = self.slowdowns.steady({**read, "pods": PODS, **self.state}, minute * 60.0)
            self.text = exposition.render(reading, self.log, minute * 60.0)
        return self.text

    def change(self, index: int, **values: Any) -> None:
        """From now on GPU `index` reads so."""
        gpus = self.state.setdefault("gpus", survey(str(self.server.root / "usr/lib/libnvidia-ml.so.1"))["gpus"])
        gpus[index] |= values

    def driver(self, state: str) -> None:
        self.state |= {"state": state, "gpus": []}

    def xid(self, number: int) -> None:
        self.server.say(f"NVRM: Xid (PCI:0000:1b:00): {number}, pid=1, words")

    def stop(self) -> None:
        self.is_written = False


@pytest.fixture
def telemetry(tmp_path: Path) -> Telemetry:
    server = FakeGpuServer(tmp_path / "machine")
    server.write(**{"gpu.3.mig-mode": "1 1", "gpu.3.mig": "MIG-7", "gpu.*.utilization": "87 40"})
    return Telemetry(server)


def promtool(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [installed("promtool"), *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=120)


def samples(text: str) -> dict[str, float]:
    found = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in found}


def ask(
    folder: Path, history: Sequence[str], questions: Sequence[Mapping[str, Any]], rules: Sequence[Path] = ()
) -> None:
    """promtool takes each of these expositions for a minute, and answers as expected."""
    read = [samples(text) for text in history]
    names = sorted({name for moment in read for name in moment})
    series = [{"series": name, "values": " ".join(str(moment.get(name, "_")) for moment in read)} for name in names]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": list(questions)}
    path = folder / "gpus.test.yaml"
    path.write_text(
        json.dumps({"rule_files": [str(each) for each in rules], "evaluation_interval": "1m", "tests": [test]})
    )
    said = promtool("test", "rules", str(path))
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_exposition_is_the_golden_one_and_promtool_has_nothing_to_say(telemetry: Telemetry) -> None:
    telemetry.xid(31)
    text = telemetry.write(1)
    assert_golden("node/gpus.prom", text)
    said = promtool("check", "metrics", given=text)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_a_driver_that_is_down_has_a_state_and_no_gpu(telemetry: Telemetry) -> None:
    telemetry.driver("Hung")
    text = telemetry.write(1)
    assert 'provisioner_gpu_driver_state{state="Hung"} 1' in text
    assert 'provisioner_gpu_driver_state{state="Ready"} 0' in text
    assert "temperature" not in text
    telemetry.driver("Newer")
    assert 'provisioner_gpu_driver_state{state="Newer"} 1' in telemetry.write(2)


def test_words_of_machines_and_pods_stay_within_their_quotes(telemetry: Telemetry) -> None:
    telemetry.change(0, name='H100"\\\n} 1')
    text = telemetry.write(1)
    assert r'name="H100\"\\\n} 1"' in text
    assert promtool("check", "metrics", given=text).returncode == 0


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS, ids=[title for title, _ in EXPRESSIONS])
def test_every_expression_of_the_dashboard_finds_something(
    telemetry: Telemetry, tmp_path: Path, title: str, expression: str
) -> None:
    telemetry.xid(31)
    history = [telemetry.write(minute) for minute in range(12)]
    asked = expression.replace('instance=~"$instance"', 'instance=~".*"').replace("$__rate_interval", "5m")
    assert "$" not in asked, title
    question = {"expr": f"count({asked}) > bool 0", "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": 1}]}
    ask(tmp_path, history, [question])


def test_the_load_of_a_pod_is_that_of_its_gpus(telemetry: Telemetry, tmp_path: Path) -> None:
    (expression,) = (each for title, each in EXPRESSIONS if title == "Utilization by pod")
    asked = expression.replace("$instance", ".*")
    pods = [("blue", "a"), ("blue", "b"), ("blue", "mig"), ("red", "train-0")]
    expected = [{"labels": f'{{pod_namespace="{space}",pod_name="{pod}"}}', "value": 0.87} for space, pod in pods]
    question = {"expr": asked, "eval_time": "1m", "exp_samples": expected}
    ask(tmp_path, [telemetry.write(0), telemetry.write(1)], [question])


Act = Callable[[Telemetry], None]
GPU_6 = 'gpu="6",pci_address="0000:d1:00.0",uuid="GPU-00000006-aaaa-bbbb-cccc-0123456789ab"'
FIRING: dict[str, tuple[Act, str]] = {
    "ProvisionerGPUDriverDown": (lambda t: t.driver("Hung"), 'severity="warning"'),
    "ProvisionerGPULost": (lambda t: t.change(6, error="GPU_IS_LOST"), f'severity="critical",{GPU_6}'),
    "ProvisionerGPUXid": (lambda t: t.xid(95), 'severity="warning",pci_address="0000:1b:00.0",'
                          'uuid="GPU-00000000-aaaa-bbbb-cccc-0123456789ab",xid="95"'),
    "ProvisionerGPUUncorrectedErrors": (lambda t: t.change(6, eccUncorrected=2), f'severity="warning",{GPU_6}'),
    "ProvisionerGPUResetNeeded": (lambda t: t.change(6, rowRemapping="Pending"), f'severity="info",{GPU_6}'),
    "ProvisionerGPURowRemappingFailed": (lambda t: t.change(6, rowRemapping="Failed"), f'severity="critical",{GPU_6}'),
    "ProvisionerGPUSlowedDown": (
        lambda t: t.change(6, slowdowns=["HwThermal"]), f'severity="warning",reason="HwThermal",{GPU_6}'),
    "ProvisionerGPUNVLinkDown": (lambda t: t.change(6, nvlinksInactive=[3]), f'severity="warning",{GPU_6}'),
    "ProvisionerGPUFabricNotRegistered": (
        lambda t: t.change(6, fabricState="NotStarted"), f'severity="warning",{GPU_6}'),
    "ProvisionerGPUSurveyStale": (lambda t: t.stop(), 'severity="warning"'),
}  # fmt: skip
QUIET: dict[str, Act] = {
    "ProvisionerGPUDriverDown": lambda t: t.change(6, error="GPU_IS_LOST"),
    "ProvisionerGPULost": lambda t: t.driver("Hung"),
    "ProvisionerGPUXid": lambda t: t.xid(31),
    "ProvisionerGPUUncorrectedErrors": lambda t: t.change(6, eccCorrected=2000),
    "ProvisionerGPUResetNeeded": lambda t: t.change(6, rowsRemappedUncorrectable=3),
    "ProvisionerGPURowRemappingFailed": lambda t: t.change(6, rowRemapping="Pending"),
    "ProvisionerGPUSlowedDown": lambda t: t.change(6, slowdowns=[]),
    "ProvisionerGPUNVLinkDown": lambda t: t.change(6, nvlinksInactive=[]),
    "ProvisionerGPUFabricNotRegistered": lambda t: t.change(6, fabricClique=9),
    "ProvisionerGPUSurveyStale": lambda t: t.driver("Hung"),
}


def firing(alert: str, telemetry: Telemetry, folder: Path, act: Act, labels: str | None) -> None:
    """Whether the alert fires when `act` happened in minute 3: with these labels, or not at all."""
    minutes = 80
    history = []
    for minute in range(minutes + 1):
        if minute == 3:
            act(telemetry)
        history.append(telemetry.write(minute))
    asked = f'ALERTS{{alertname="{alert}",alertstate="firing"'
    expected = [] if labels is None else [{"labels": f"{asked},{labels}}}", "value": 1}]
    at = "50m" if alert == "ProvisionerGPUUncorrectedErrors" else f"{minutes}m"
    ask(folder, history, [{"expr": f"{asked}}}", "eval_time": at, "exp_samples": expected}], [ALERTS])


@pytest.mark.parametrize("alert", FIRING)
def test_an_alert_fires_for_what_it_is_for(telemetry: Telemetry, tmp_path: Path, alert: str) -> None:
    act, labels = FIRING[alert]
    firing(alert, telemetry, tmp_path, act, labels)


@pytest.mark.parametrize("alert", QUIET)
def test_an_alert_is_quiet_about_less(telemetry: Telemetry, tmp_path: Path, alert: str) -> None:
    firing(alert, telemetry, tmp_path, QUIET[alert], None)


def test_every_alert_is_shown_firing_and_quiet_and_promtool_takes_them_all() -> None:
    assert (list(FIRING), list(QUIET)) == (list(RULES), list(RULES))
    said = promtool("check", "rules", str(ALERTS))
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_alert_for_xids_and_the_checks_mean_the_same_ones() -> None:
    (listed,) = re.findall(r'xid=~"([0-9|]+)"', RULES["ProvisionerGPUXid"]["expr"])
    assert [int(each) for each in listed.split("|")] == [number for number, xid in XIDS.items() if xid.action.fails]
