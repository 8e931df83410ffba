"""The dashboards of docs/dashboards, panel by panel. `python -m tests.monitoring.dashboards` writes them as Grafana
reads them; a test holds the files to it. gpus.json is of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[2] / "docs" / "dashboards"
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """queries: expression → legend. unit: as Grafana calls it."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    words: str = ""


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """variables: name → the query of its values."""

    name: str
    title: str
    rows: tuple[Row, ...]
    variables: dict[str, str] = field(default_factory=dict)
    several: bool = True
    text: str = ""


def stat(title: str, expression: str, unit: str = "short", words: str = "") -> Panel:
    return Panel(title, {expression: ""}, unit, "stat", width=6, height=4, words=words)


def quantile(q: float, metric: str, by: str, where: str = "") -> str:
    return f"histogram_quantile({q}, sum by (le, {by}) (rate({metric}_bucket{where}[$__rate_interval])))"


def per_second(metric: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{where}[$__rate_interval]))"


POOL: Final = '{pool=~"$pool"}'
OF_IMAGES: Final = '{class=~"manifest|kernel|stage1|layer|part"}'

FLEET: Final = Dashboard(
    "fleet",
    "Provisioner: fleet",
    variables={"pool": "label_values(provisioner_servers, pool)"},
    rows=(
        Row("Now", (
            stat("Servers", f"sum(provisioner_servers{POOL})"),
            stat("In production", 'sum(provisioner_servers{pool=~"$pool",lifecycle="InProduction"}) '
                 f"/ sum(provisioner_servers{POOL})", "percentunit"),
            stat("Boots that are late", "sum(provisioner_boots_late)"),
            stat("Maintenances", f"sum(provisioner_maintenances_active{POOL})"),
            stat("BMCs that fail", 'sum(provisioner_bmcs{state!~"Well|NotAsked"})'),
            stat("Images that are missing", "sum(provisioner_images_missing)"),
            stat("Racks whose cache is out", "sum(provisioner_racks_with_cache_out)"),
            stat("First certificate to end", "min(provisioner_certificate_expiry_timestamp_seconds) - time()", "s"),
        )),
        Row("Servers", (
            Panel("Servers by lifecycle", {f"sum by (lifecycle) (provisioner_servers{POOL})": "{{lifecycle}}"}),
            Panel("Servers by pool", {f"sum by (pool) (provisioner_servers{POOL})": "{{pool}}"}),
            Panel("BMCs by how they answer", {"sum by (state) (provisioner_bmcs)": "{{state}}"}),
            Panel("BMC errors", {per_second("provisioner_bmc_errors_total", "error"): "{{error}}"}, "ops"),
        )),
        Row("Controllers", (
            Panel("Who leads", {"sum by (group, instance) (provisioner_leads)": "{{group}} {{instance}}"},
                  kind="table"),
            Panel("Leaderships", {"sum by (lease, change) (increase(provisioner_lease_transitions_total[1h]))":
                                  "{{lease}} {{change}}"}),
            Panel("Keys that wait", {"sum by (controller) (provisioner_queue_depth)": "{{controller}}"}),
            Panel("The oldest key that waits", {"max by (controller) (provisioner_queue_oldest_seconds)":
                                                "{{controller}}"}, "s"),
            Panel("Wait for a worker, 99th percentile",
                  {quantile(0.99, "provisioner_queue_wait_seconds", "controller"): "{{controller}}"}, "s"),
            Panel("Reconcile, 99th percentile",
                  {quantile(0.99, "provisioner_reconcile_seconds", "controller"): "{{controller}}"}, "s"),
            Panel("Reconciles that did not succeed",
                  {per_second("provisioner_reconcile_errors_total", "controller, error"): "{{controller}} {{error}}"},
                  "ops"),
            Panel("Age of the copies", {"max by (kind) (provisioner_watch_age_seconds)": "{{kind}}"}, "s"),
            Panel("Checks of health", {"min by (instance, check) (provisioner_readiness_check)":
                                       "ready: {{check}} {{instance}}",
                                       "min by (instance, check) (provisioner_liveness_check)":
                                       "alive: {{check}} {{instance}}"}, kind="table"),
            Panel("Versions", {"count by (component, version) (provisioner_build_info)": "{{component}} {{version}}"},
                  kind="table"),
        )),
        Row("API server", (
            Panel("Requests by answer", {per_second("provisioner_api_requests_total", "code"): "{{code}}"}, "reqps"),
            Panel("Requests by verb and resource",
                  {f"topk(15, {per_second('provisioner_api_requests_total', 'verb, resource')})":
                   "{{verb}} {{resource}}"}, "reqps"),
            Panel("Answers, 99th percentile",
                  {quantile(0.99, "provisioner_api_request_seconds", "verb", '{verb!="watch"}'): "{{verb}}"}, "s"),
            Panel("Memory of the services", {"process_resident_memory_bytes * on (instance) group_left (component) "
                                             "provisioner_build_info": "{{component}} {{instance}}"}, "bytes"),
        )),
        Row("Tenant networks", (
            Panel("Attachments by reason", {"sum by (reason) (provisioner_attachments)": "{{reason}}"}),
            Panel("Longest wait of an attachment",
                  {"max by (reason) (provisioner_attachment_oldest_wait_seconds)": "{{reason}}"}, "s"),
            Panel("DPUs", {"sum by (state) (provisioner_dpus)": "{{state}}",
                           "sum by (state) (provisioner_dpu_networks)": "network: {{state}}"}),
            Panel("Routes", {"sum by (state) (provisioner_reflectors)": "reflector: {{state}}",
                             "sum by (exchanged) (provisioner_dpus_exchanging)": "DPU exchanges: {{exchanged}}"}),
        )),
    ),
)  # fmt: skip

BOOT: Final = Dashboard(
    "boot",
    "Provisioner: boots",
    rows=(
        Row("Boots", (
            stat("Boots in an hour", "sum(increase(provisioner_boots_ordered_total[1h]))"),
            stat("Median, power-on to Ready",
                 "histogram_quantile(0.5, sum by (le) (increase(provisioner_boot_seconds_bucket[6h])))", "s"),
            stat("Boots that are late", "sum(provisioner_boots_late)"),
            stat("Boot hosts", 'count(provisioner_build_info{component="boot"})'),
            Panel("Boots ordered, by reason", {per_second("provisioner_boots_ordered_total", "reason"): "{{reason}}"},
                  "ops"),
            Panel("Power-on to Ready",
                  {"histogram_quantile(0.5, sum by (le) (rate(provisioner_boot_seconds_bucket[$__rate_interval])))":
                   "median",
                   "histogram_quantile(0.9, sum by (le) (rate(provisioner_boot_seconds_bucket[$__rate_interval])))":
                   "90 %"}, "s"),
            Panel("Median of each stage", {quantile(0.5, "provisioner_boot_stage_seconds", "stage"): "{{stage}}"}, "s"),
            Panel("90 % of each stage", {quantile(0.9, "provisioner_boot_stage_seconds", "stage"): "{{stage}}"}, "s"),
            Panel("Stages that timed out",
                  {"sum by (stage) (increase(provisioner_boot_stage_timeouts_total[1h]))": "{{stage}}"}),
            Panel("Boots that are late now", {"sum by (stage) (provisioner_boots_late)": "{{stage}}"}),
            Panel("Checks before use", {"sum by (check, result) (increase(provisioner_checks_total[1h]))":
                                        "{{check}} {{result}}"}),
            Panel("BMC errors", {per_second("provisioner_bmc_errors_total", "error"): "{{error}}"}, "ops"),
        )),
        Row("DHCP and TFTP", (
            Panel("Messages, by what sent them",
                  {per_second("provisioner_dhcp_messages_total", "type, client"): "{{type}} {{client}}"}, "ops"),
            Panel("Answers", {per_second("provisioner_dhcp_answers_total", "answer"): "{{answer}}"}, "ops"),
            Panel("Not answered, by reason", {per_second("provisioner_dhcp_dropped_total", "reason"): "{{reason}}"},
                  "ops"),
            Panel("Time to the answer",
                  {"histogram_quantile(0.99, sum by (le, instance) "
                   "(rate(provisioner_dhcp_answer_seconds_bucket[$__rate_interval])))": "99 % {{instance}}"}, "s"),
            Panel("Workers", {"sum by (instance) (provisioner_dhcp_workers_ready)": "ready {{instance}}",
                              "sum by (instance) (provisioner_dhcp_workers)": "wanted {{instance}}"}),
            Panel("TFTP", {per_second("provisioner_tftp_transfers_total", "file, result"): "{{file}} {{result}}"},
                  "ops"),
        )),
        Row("Scripts and images", (
            Panel("Requests by what was asked", {per_second("provisioner_http_requests_total", "class"): "{{class}}"},
                  "reqps"),
            Panel("Requests by answer", {per_second("provisioner_http_requests_total", "code"): "{{code}}"}, "reqps"),
            Panel("Sent by boot hosts", {per_second("provisioner_http_sent_bytes_total", "instance"): "{{instance}}"},
                  "Bps"),
            Panel("Share of requests for images that must wait",
                  {"sum(rate(provisioner_http_requests_total{class=~\"manifest|kernel|stage1|layer|part\",code=\"503\"}"
                   f"[$__rate_interval])) / sum(rate(provisioner_http_requests_total{OF_IMAGES}[$__rate_interval]))":
                   "503"}, "percentunit"),
            Panel("Answers, 90 %", {quantile(0.9, "provisioner_http_request_seconds", "class"): "{{class}}"}, "s"),
            Panel("Connections and slots", {'sum by (instance) (provisioner_http_connections{state="writing"})':
                                            "sending {{instance}}",
                                            "sum by (instance) (provisioner_image_slots)": "slots {{instance}}"}),
            Panel("Image stores", {"sum by (instance, state) (provisioner_image_store_images)":
                                   "{{state}} {{instance}}"}),
            Panel("Free on the disks", {"provisioner_image_store_free_bytes": "images {{instance}}",
                                        "provisioner_state_free_bytes": "state {{instance}}"}, "bytes"),
            Panel("Pulls of images", {"sum by (instance, result) (increase(provisioner_image_pulls_total[1h]))":
                                      "{{result}} {{instance}}"}),
            Panel("The oldest change without a script",
                  {"max by (instance) (provisioner_scripts_pending_seconds)": "{{instance}}"}, "s"),
        )),
        Row("Joining", (
            Panel("Joins by outcome", {per_second("provisioner_joins_total", "outcome"): "{{outcome}}"}, "ops"),
            Panel("Joins that were refused or have to wait, by reason",
                  {"sum by (outcome, reason) (increase(provisioner_joins_total{outcome=~\"denied|not_yet\"}[1h]))":
                   "{{outcome}} {{reason}}"}),
            Panel("Certificates of kubelets",
                  {per_second("provisioner_certificates_total", "signer, outcome"): "{{signer}} {{outcome}}"}, "ops"),
            Panel("Reports of machines", {per_second("provisioner_progress_reports_total", "result"): "{{result}}"},
                  "ops"),
        )),
    ),
)  # fmt: skip

MAINTENANCE: Final = Dashboard(
    "maintenance",
    "Provisioner: maintenance and rollouts",
    variables={"pool": "label_values(provisioner_servers, pool)"},
    rows=(
        Row("Maintenances", (
            Panel("Now, by phase", {f"sum by (phase) (provisioner_maintenances_active{POOL})": "{{phase}}"}),
            Panel("Longest in each phase",
                  {f"max by (phase) (provisioner_maintenance_oldest_phase_seconds{POOL})": "{{phase}}"}, "s"),
            Panel("What they wait for", {f"sum by (blocker) (provisioner_maintenances_blocked{POOL})": "{{blocker}}"}),
            Panel("Ended in an hour, by why",
                  {"sum by (phase, reason) (increase(provisioner_maintenances_ended_total[1h]))":
                   "{{phase}} {{reason}}"}),
            Panel("Time in each phase, 90 %",
                  {quantile(0.9, "provisioner_maintenance_phase_seconds", "phase"): "{{phase}}"}, "s"),
            Panel("Time waited for what, 90 %",
                  {quantile(0.9, "provisioner_maintenance_wait_seconds", "blocker"): "{{blocker}}"}, "s"),
            Panel("Attempts at a reboot",
                  {"sum by (method, outcome) (increase(provisioner_reboot_attempt_seconds_count[1h]))":
                   "{{method}} {{outcome}}"}),
            Panel("From the request to the end, 90 %",
                  {quantile(0.9, "provisioner_maintenance_seconds", "action"): "{{action}}"}, "s"),
            Panel("Backends that are given up", {"max by (kind, backend) (provisioner_backend_given_up)":
                                                 "{{kind}} {{backend}}"}),
            Panel("Events that were not written", {per_second("provisioner_events_dropped_total", "type"): "{{type}}"},
                  "ops"),
        )),
        Row("Rollouts", (
            stat("Share with the image", 'sum(provisioner_rollout_servers{pool=~"$pool",state="Updated"}) '
                 f"/ sum(provisioner_rollout_servers_desired{POOL})", "percentunit"),
            stat("Until it is expected to be complete",
                 f"max(provisioner_rollout_expected_completion_timestamp_seconds{POOL}) - time()", "s",
                 "Nothing while no rollout is under way."),
            stat("Stopped themselves", f"sum(provisioner_rollout_stopped{POOL})"),
            stat("Paused by a person", f"sum(provisioner_rollout_paused{POOL})"),
            Panel("Servers on their way", {f"sum by (pool, state) (provisioner_rollout_servers{POOL})":
                                           "{{pool}} {{state}}"}),
            Panel("What servers wait for", {f"sum by (pool, reason) (provisioner_rollout_waits{POOL})":
                                            "{{pool}} {{reason}}"}),
            Panel("Stage", {f"provisioner_rollout_stage{POOL} == 1": "{{pool}} {{stage}}"}, kind="table"),
            Panel("Servers out of use", {f"sum by (pool) (provisioner_rollout_servers_unavailable{POOL})": "{{pool}}"}),
            Panel("Share of jobs that fail, by image",
                  {f"provisioner_rollout_jobs_failed{POOL} / provisioner_rollout_jobs_ended{POOL}":
                   "{{pool}} {{image}}"}, "percentunit"),
            Panel("Began, ended, stopped in a day",
                  {f"sum by (pool) (increase(provisioner_rollouts_started_total{POOL}[1d]))": "{{pool}} began",
                   f"sum by (pool, outcome) (increase(provisioner_rollouts_ended_total{POOL}[1d]))":
                   "{{pool}} {{outcome}}",
                   f"sum by (pool, reason) (increase(provisioner_rollouts_stopped_total{POOL}[1d]))":
                   "{{pool}} stopped: {{reason}}"}),
        )),
    ),
)  # fmt: skip

ONE: Final = '{server="$server"}'
SERVER: Final = Dashboard(
    "server",
    "Provisioner: one server",
    variables={"server": "label_values(provisioner_server_info, server)"},
    several=False,
    text=(
        "What the cluster says of one server, by kube-state-metrics (docs/manifests/kube-state-metrics-servers.yaml): "
        "the product's own metrics name no server. More, and live: `provisioner web`, `kubectl provision why $server`, "
        "`kubectl describe server $server`. Its GPUs: the dashboard GPUs."
    ),
    rows=(
        Row("Now", (
            Panel("What it is", {f"provisioner_server_info{ONE}": ""}, kind="table", width=24, height=5),
            stat("Ready since", f"time() - (provisioner_server_ready_timestamp_seconds{ONE} "
                 f"> provisioner_server_ordered_timestamp_seconds{ONE})", "s", "Nothing while it boots."),
            stat("Boot ordered", f"time() - provisioner_server_ordered_timestamp_seconds{ONE}", "s"),
            stat("Attempt", f"provisioner_server_boot_attempt{ONE}"),
            stat("Power-on to Ready", f"provisioner_server_ready_timestamp_seconds{ONE} "
                 f"- provisioner_server_powered_on_timestamp_seconds{ONE} > 0", "s", "Nothing while it boots."),
            Panel("Conditions", {f"provisioner_server_condition{ONE}": ""}, kind="table", width=24),
        )),
        Row("This boot, beside others", (
            Panel("Since power-on, each stage as it was heard",
                  {f"provisioner_server_boot_stage_timestamp_seconds{ONE} "
                   f"- on (server) group_left () provisioner_server_powered_on_timestamp_seconds{ONE}": "{{stage}}",
                   f"provisioner_server_joined_timestamp_seconds{ONE} "
                   f"- on (server) provisioner_server_powered_on_timestamp_seconds{ONE}": "join configuration",
                   f"provisioner_server_ready_timestamp_seconds{ONE} "
                   f"- on (server) provisioner_server_powered_on_timestamp_seconds{ONE}": "Ready"}, "s", "bargauge",
                  words="Nobody proves what was heard; the join configuration and Ready are proven."),
            Panel("Median of each stage in the fleet, a day",
                  {"histogram_quantile(0.5, sum by (le, stage) (increase(provisioner_boot_stage_seconds_bucket[1d])))":
                   "{{stage}}"}, "s", "bargauge"),
            Panel("Lifecycle", {f"sum by (lifecycle) (provisioner_server_info{ONE})": "{{lifecycle}}"}),
            Panel("Conditions that do not hold",
                  {'sum by (type, reason) (provisioner_server_condition{server="$server",status!="True"})':
                   "{{type}}: {{reason}}"}),
        )),
    ),
)  # fmt: skip

DASHBOARDS: Final = (FLEET, BOOT, MAINTENANCE, SERVER)


def render(dashboard: Dashboard) -> dict[str, Any]:
    """As Grafana reads it."""
    panels: list[dict[str, Any]] = []
    y = 0
    if dashboard.text:
        options = {"mode": "markdown", "content": dashboard.text}
        panels.append({"title": "", "type": "text", "options": options, "gridPos": {"x": 0, "y": 0, "w": 24, "h": 3}})
        y = 3
    for row in dashboard.rows:
        place = {"x": 0, "y": y, "w": 24, "h": 1}
        panels.append({"title": row.title, "type": "row", "collapsed": False, "panels": [], "gridPos": place})
        x, y, tallest = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > 24:
                x, y, tallest = 0, y + tallest, 0
            panels.append(_panel(panel, x, y))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    for number, each in enumerate(panels, 1):
        each["id"] = number
    return {
        "title": dashboard.title,
        "uid": f"provisioner-{dashboard.name}",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "tags": ["provisioner"],
        "time": {"from": "now-6h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["provisioner"], "title": "Provisioner", "asDropdown": True}],
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
                       + [_variable(name, query, dashboard.several) for name, query in dashboard.variables.items()]},
        "panels": panels,
    }  # fmt: skip


def _panel(panel: Panel, x: int, y: int) -> dict[str, Any]:
    targets = []
    for number, (expression, legend) in enumerate(panel.queries.items()):
        target: dict[str, Any] = {
            "refId": chr(ord("A") + number),
            "expr": expression,
            "legendFormat": legend or "__auto",
        }
        if panel.kind in ("table", "stat", "bargauge"):
            target |= {"instant": True, "range": False}
        if panel.kind == "table":
            target["format"] = "table"
        targets.append(target)
    return {
        "title": panel.title,
        "type": panel.kind,
        **({"description": panel.words} if panel.words else {}),
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }


def _variable(name: str, query: str, several: bool) -> dict[str, Any]:
    variable = {"name": name, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2}
    return variable | ({"includeAll": True, "multi": True, "allValue": ".*"} if several else {})


def written(dashboard: Dashboard) -> str:
    return json.dumps(render(dashboard), indent=2) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each.name}.json").write_text(written(each))
