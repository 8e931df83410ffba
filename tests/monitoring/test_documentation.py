"""docs/monitoring.md says of every metric, alert and dashboard what is served, and of nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from provisioner.cluster.tracing.tracer import BootTracer
from tests.monitoring.dashboards import FOLDER
from tests.monitoring.expositions import FleetOfTests, HostOfTests, cache_of_tests, families
from tests.monitoring.test_alerts import ROOT, RULES, anchors

MONITORING = (ROOT / "docs" / "monitoring.md").read_text()


def section(title: str) -> str:
    """From its heading to the next one of its rank or a higher one."""
    found = re.search(rf"^(#+) {re.escape(title)}$", MONITORING, re.MULTILINE)
    assert found is not None, title
    rest = MONITORING[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end is not None else rest


def documented(title: str) -> dict[str, tuple[str, set[str]]]:
    """Of each metric in the table: its type and its labels."""
    rows = re.findall(r"^\| `(provisioner_\w+)` \| (\w+) \| ([^|]*) \|", section(title), re.MULTILINE)
    return {name: (kind, {label.strip() for label in labels.split(",")} - {"–"}) for name, kind, labels in rows}


def served(text: str) -> dict[str, tuple[str, set[str]]]:
    labels = families(text)
    found = {}
    for name, kind in re.findall(r"^# TYPE (provisioner_\w+) (\w+)$", text, re.MULTILINE):
        if not name.endswith("_created"):
            given = labels.get(name, set()) | labels.get(f"{name}_bucket", set())
            found[name] = (kind, given - {"le"})
    return found


def controller() -> str:
    fleet = FleetOfTests()
    fleet.live()
    with suppress(TimeoutError), fleet.slurm.call("https://slurm.example:6820/"):
        raise TimeoutError
    traces = CollectorRegistry()
    BootTracer(lambda _traces: True, traces).close()
    return fleet.text() + generate_latest(traces).decode()


def host(folder: Path) -> str:
    host = HostOfTests(folder)
    host.live()
    return host.text()


@pytest.mark.parametrize("service", ["a controller", "a boot host", "a rack's cache"])
def test_every_metric_of_a_service_is_in_its_table_with_its_type_and_labels(service: str, tmp_path: Path) -> None:
    text = {"a controller": controller, "a boot host": lambda: host(tmp_path)}.get(
        service, lambda: cache_of_tests(tmp_path)
    )()
    told = documented("Of every service") | documented(f"Of {service}")
    found = served(text)
    if service == "a rack's cache":
        told = documented("Of a boot host") | told
        assert set(documented(f"Of {service}")) <= set(found)
    else:
        assert set(documented(f"Of {service}")) == set(found) - set(documented("Of every service"))
    assert {name: told[name] for name in found} == found


def test_every_alert_is_in_the_table_with_its_severity_and_its_entry_of_the_runbook() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| .* \| \[[^]]*\]\((runbook\.md#[\w-]+)\) \|$", section("Alerts"), re.MULTILINE
    )
    assert {alert: (severity, f"docs/{url}") for alert, severity, url in rows} == {
        alert: (rule["labels"]["severity"], rule["annotations"]["runbook_url"]) for alert, rule in RULES.items()
    }


def test_each_critical_alert_is_one_to_be_woken_for_and_no_other() -> None:
    named = set(re.findall(r"`(Provisioner\w+)`", section("What to be woken for")))
    assert named == {alert for alert, rule in RULES.items() if rule["labels"]["severity"] == "critical"}


def test_every_dashboard_is_in_the_table() -> None:
    assert set(re.findall(r"\(dashboards/(\w+\.json)\)", section("Dashboards"))) == {
        file.name for file in FOLDER.glob("*.json")
    }


def test_the_expressions_of_the_document_are_over_metrics_that_are_served(tmp_path: Path) -> None:
    known = set(families(controller())) | set(families(host(tmp_path))) | set(families(cache_of_tests(tmp_path)))
    known |= {re.sub(r"_(bucket|sum|count)$", "", name) for name in known}
    named = set(re.findall(r"\bprovisioner_[a-z0-9_]+", MONITORING))
    prefixes = {name for name in named if name.endswith("_")}
    assert {name for name in named - prefixes if name not in known} == set()
    assert all(any(name.startswith(prefix) for name in known) for prefix in prefixes)


def links() -> Iterator[tuple[str, str]]:
    for target in re.findall(r"\]\(([^)]+)\)", MONITORING):
        document, _, anchor = target.partition("#")
        yield document or "monitoring.md", anchor


@pytest.mark.parametrize(("document", "anchor"), sorted(set(links())))
def test_a_link_leads_somewhere(document: str, anchor: str) -> None:
    assert (ROOT / "docs" / document).exists()
    if anchor:
        assert anchor in anchors(f"docs/{document}")
