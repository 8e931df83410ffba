"""Every dashboard: what it asks is served, with the labels that it asks by, and finds something."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.api import Server
from provisioner.api.crd import crd_of
from provisioner.api.machinery.codec import decode
from tests.monitoring.dashboards import DASHBOARDS, FOLDER, written
from tests.monitoring.expositions import FleetOfTests, HostOfTests, families, history, promtool
from tests.monitoring.fake_kube_state_metrics import expose

MANIFESTS = FOLDER.parent / "manifests"
FILES = {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}
OURS = ["boot", "fleet", "maintenance", "server"]
MINUTES = 12
VARIABLES = {"$pool": ".*", "$server": "r01-u01", "$__rate_interval": "5m", "${datasource}": "prometheus"}
SERVER = {
    "apiVersion": "provisioner.dev/v1alpha1",
    "kind": "Server",
    "metadata": {"name": "r01-u01"},
    "spec": {"bootMACAddress": "52:54:00:80:01:01", "rackRef": "r01", "position": "u01", "nodePoolRef": "gpu"},
    "status": {
        "lifecycle": "InProduction",
        "bootStage": "Ready",
        "imageRef": "new",
        "order": {"id": "o", "reason": "FirstBoot", "orderedTime": "1970-01-01T00:01:00Z", "attempt": 1},
        "power": {"orderID": "o", "orderTime": "1970-01-01T00:01:01Z", "state": "On"},
        "progress": {"stageTimes": [{"stage": "IPXE", "time": "1970-01-01T00:01:30.250000Z"}]},
        "join": {"orderID": "o", "fetchedTime": "1970-01-01T00:01:50Z"},
        "readyTime": "1970-01-01T00:02:00Z",
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "NodeReady", "message": "", "lastTransitionTime":
             "1970-01-01T00:02:00Z"},
            {"type": "Verified", "status": "False", "reason": "Checking", "message": "", "lastTransitionTime":
             "1970-01-01T00:02:00Z"},
        ],
    },
}  # fmt: skip


def configuration() -> Any:
    (config, _) = yaml.safe_load_all((MANIFESTS / "kube-state-metrics-servers.yaml").read_text())
    return yaml.safe_load(config["data"]["servers.yaml"])


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of each minute: a controller, a boot host, kube-state-metrics."""
    fleet, host = FleetOfTests(), HostOfTests(tmp_path_factory.mktemp("host"))
    told = []
    for _ in range(MINUTES):
        fleet.live()
        host.live()
        told.append(
            "".join((_labelled(fleet.text(), "a"), _labelled(host.text(), "b"), expose(configuration(), SERVER)))
        )
    with_backend = 'provisioner_backend_given_up{backend="slurm:6820",instance="a",kind="slurmrestd"} 1\n'
    return [text + with_backend for text in told]


def _labelled(text: str, instance: str) -> str:
    """As Prometheus has it that scraped `instance`."""
    lines = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        series, _, value = line.rpartition(" ")
        name, _, labels = series.partition("{")
        words = f"{labels[:-1]}," if labels else ""
        lines.append(f'{name}{{{words}instance="{instance}"}} {value}')
    return "\n".join(lines) + "\n"


def questions(dashboard: Any) -> Iterator[tuple[str, str]]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            asked = target["expr"]
            for name, value in VARIABLES.items():
                asked = asked.replace(name, value)
            yield panel["title"], asked


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_the_file_is_what_its_panels_say(dashboard: Any) -> None:
    """`python -m tests.monitoring.dashboards` writes them."""
    assert (FOLDER / f"{dashboard.name}.json").read_text() == written(dashboard)


def test_each_dashboard_is_one_of_those_that_are_tested() -> None:
    assert sorted(FILES) == sorted([*OURS, "gpus"])


@pytest.mark.parametrize("name", OURS)
def test_every_metric_and_label_that_is_asked_for_is_served(name: str, texts: list[str]) -> None:
    served = families(texts[-1])
    for title, asked in questions(FILES[name]):
        assert "$" not in asked, title
        metrics = set(re.findall(r"\b(?:provisioner|process)_[a-z0-9_]+", asked))
        assert metrics, title
        assert metrics <= set(served), (title, metrics - set(served))
        known = set().union(*(served[metric] for metric in metrics)) | {"le", "instance"}
        by = {label.strip() for group in re.findall(r"\b(?:by|on|group_left) ?\(([^)]*)\)", asked)
              for label in group.split(",") if label.strip()}  # fmt: skip
        selected = set(re.findall(r'(\w+)(?:=~|!~|!=|=)"', asked))
        assert by | selected <= known, (title, (by | selected) - known)


@pytest.mark.programs
@pytest.mark.parametrize("name", OURS)
def test_every_expression_is_parsed_by_promtool_and_finds_something(
    name: str, texts: list[str], tmp_path: Path
) -> None:
    wanted = set(re.findall(r"\b(?:provisioner|process)_[a-z0-9_]+", str(FILES[name])))
    given = [each for each in history(texts) if each["series"].partition("{")[0] in wanted]
    asked = [  # what is no number equals nothing, not even itself
        {
            "expr": f"count(({expr}) == ({expr})) > bool 0",
            "eval_time": f"{MINUTES - 1}m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for _, expr in questions(FILES[name])
    ]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": asked}
    path = tmp_path / "dashboard.test.yaml"
    path.write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": [test]}))
    said = promtool("test", "rules", str(path))
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("name", OURS)
def test_every_panel_has_a_title_a_unit_and_a_query_and_none_covers_another(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in FILES[name]["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] in ("row", "text"):
            continue
        assert panel["title"]
        assert panel["targets"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
    ids = [panel["id"] for panel in FILES[name]["panels"]]
    assert len(ids) == len(set(ids))


def test_what_kube_state_metrics_is_asked_for_is_there_in_the_schema_of_servers() -> None:
    """Its labels would be empty without a word."""
    decode(Server, SERVER)
    (resource,) = configuration()["spec"]["resources"]
    crd = crd_of(Server)
    assert resource["groupVersionKind"]["kind"] == crd["spec"]["names"]["kind"]
    assert resource["groupVersionKind"]["group"] == crd["spec"]["group"]
    (version,) = (v for v in crd["spec"]["versions"] if v["name"] == resource["groupVersionKind"]["version"])
    schema = version["schema"]["openAPIV3Schema"]

    def walk(at: Any, path: list[str]) -> Any:
        for key in path:
            at = at.get("items", at)
            assert key in at["properties"], path
            at = at["properties"][key]
        return at

    for metric in resource["metrics"]:
        (each,) = (value for key, value in metric["each"].items() if key != "type")
        at = walk(schema, each.get("path", []))
        for path in each.get("labelsFromPath", {}).values():
            walk(at, path)
        walk(at, each.get("valueFrom", []))


def test_a_server_has_as_many_series_as_is_said() -> None:
    said = int(
        re.findall(r"About (\d+) series a server", (MANIFESTS / "kube-state-metrics-servers.yaml").read_text())[0]
    )
    body = json.loads(json.dumps(SERVER))
    types = ("Discovered", "Accepted", "PoweredOn", "Booted", "Joined", "NodePrepared", "Verified", "Ready")
    body["status"]["conditions"] = [{"type": each, "status": "True", "reason": "x"} for each in types]
    stages = ("Firmware", "IPXE", "Stage1", "Root", "System", "Token")
    body["status"]["progress"]["stageTimes"] = [{"stage": each, "time": "1970-01-01T00:01:30Z"} for each in stages]
    assert said - 3 <= len(expose(configuration(), body).splitlines()) <= said
