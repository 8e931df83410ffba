"""Alerts over controllers, boots, boot hosts and tenant networks: each shown firing, and quiet on its honest twin, by
promtool. The series are named as the services serve them; that they do is a test of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.expositions import FleetOfTests, HostOfTests, cache_of_tests, families, promtool, samples

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "docs" / "prometheus-alerts.yaml"
GROUPS = yaml.safe_load(ALERTS.read_text())["groups"]
RULES: dict[str, Any] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
ELSEWHERE = [rule["alert"] for rule in GROUPS[0]["rules"]]
"""Those of tests/cluster/test_alerts.py."""

Series = Mapping[str, str]
"""Values a minute apart, as promtool writes them: 0+1x60 grows by 1 each minute."""
DAY = 86400
BMCS = "provisioner_bmcs{state="
IMAGES = 'provisioner_http_requests_total{class="layer",code='

FIRING: dict[str, tuple[Series, int, str]] = {
    "ProvisionerServiceHangs": (
        {'provisioner_liveness_check{check="workers"}': "1x4 0x60"}, 8, 'severity="critical",check="workers"'),
    "ProvisionerControllerNotReady": (
        {'provisioner_readiness_check{check="api-server"}': "1x4 0x60"}, 16, 'severity="warning",check="api-server"'),
    "ProvisionerLeaseFlaps": (
        {'provisioner_lease_transitions_total{change="Lost",lease="provisioner-controller"}': "0x5 1x5 2x5 4x60"}, 40,
        'severity="warning",lease="provisioner-controller"'),
    "ProvisionerQueueStuck": (
        {'provisioner_queue_oldest_seconds{controller="boot"}': "0x5 60+60x60"}, 30,
        'severity="warning",controller="boot"'),
    "ProvisionerReconcileHangs": (
        {'provisioner_reconcile_longest_seconds{controller="boot"}': "0x5 60+60x60"}, 20,
        'severity="warning",controller="boot"'),
    "ProvisionerReconcilesFail": (
        {'provisioner_reconcile_errors_total{controller="boot",error="Failed"}': "0x5 1+1x60"}, 20,
        'severity="warning",controller="boot"'),
    "ProvisionerAPIErrors": (
        {'provisioner_api_requests_total{code="2xx",resource="servers",verb="list"}': "0+30x60",
         'provisioner_api_requests_total{code="none",resource="servers",verb="list"}': "0x5 0+10x60"}, 40,
        'severity="warning"'),
    "ProvisionerAPIForbidden": (
        {'provisioner_api_requests_total{code="403",resource="servers",verb="list"}': "0x5 0+1x90"}, 50,
        'severity="warning",code="403",resource="servers",verb="list"'),
    "ProvisionerAPISlow": (
        {'provisioner_api_request_seconds_sum{resource="servers",verb="list"}': "0+40x90",
         'provisioner_api_request_seconds_count{resource="servers",verb="list"}': "0+20x90"}, 60, 'severity="info"'),
    "ProvisionerWatchStale": (
        {'provisioner_watch_age_seconds{kind="Node"}': "30x5 60+60x60",
         'provisioner_watch_synced{kind="Node"}': "1x60"},
        20, 'severity="warning",kind="Node"'),
    "ProvisionerCertificateEndsSoon": (
        {'provisioner_certificate_expiry_timestamp_seconds{purpose="join"}': f"{13 * DAY}x60"}, 20,
        'severity="warning",purpose="join"'),
    "ProvisionerCertificateEnds": (
        {'provisioner_certificate_expiry_timestamp_seconds{purpose="join"}': f"{DAY}x60",
         'provisioner_certificate_begin_timestamp_seconds{purpose="join"}': f"{-6 * DAY}x60"}, 20,
        'severity="critical",purpose="join"'),
    "ProvisionerStagesTimeOut": (
        {'provisioner_boot_stage_timeouts_total{stage="Root"}': "0x5 2x5 5x60",
         'provisioner_boots_ordered_total{reason="Requested"}': "0x5 20x5 60x60"}, 30,
        'severity="warning",stage="Root"'),
    "ProvisionerBootsLate": (
        {'provisioner_boots_late{stage="Firmware"}': "0x5 5x60"}, 50, 'severity="warning",stage="Firmware"'),
    "ProvisionerBMCsFail": (
        {f'{BMCS}"Well"}}': "100x60", f'{BMCS}"BMCUnreachable"}}': "0x5 3x60", f'{BMCS}"Refused"}}': "0x5 1x60"}, 30,
        'severity="warning"'),
    "ProvisionerImageMissing": (
        {'provisioner_images_missing{state="Absent"}': "0x5 1x60"}, 30, 'severity="warning",state="Absent"'),
    "ProvisionerCertificatesDenied": (
        {'provisioner_certificates_total{outcome="OldCertificate",signer="client"}': "0x5 1x5 4x60"}, 30,
        'severity="warning",outcome="OldCertificate",signer="client"'),
    "ProvisionerJoinsRefused": (
        {'provisioner_joins_total{outcome="denied",reason="WrongImage"}': "0x5 6x5 12x60"}, 30,
        'severity="warning",reason="WrongImage"'),
    "ProvisionerNoBootHost": ({'provisioner_build_info{component="controller",version="0.2.0"}': "1x60"}, 10,
        'severity="critical"'),
    "ProvisionerBootHostDown": (
        {'provisioner_build_info{component="boot",version="0.2.0",instance="a"}': "1x10 _x60",
         'provisioner_build_info{component="boot",version="0.2.0",instance="b"}': "1x60"}, 30,
        'severity="warning",instance="a"'),
    "ProvisionerBootHostNotReady": (
        {'provisioner_readiness_check{check="nginx"}': "1x5 0x60"}, 20, 'severity="warning",check="nginx"'),
    "ProvisionerBootDiskFull": (
        {"provisioner_image_store_free_bytes": "50e9x5 9e9x60", "provisioner_image_store_size_bytes": "100e9x60"}, 30,
        'severity="warning"'),
    "ProvisionerBootHostLacksImages": (
        {'provisioner_image_store_images{state="incomplete"}': "0x5 1x60"}, 50, 'severity="warning"'),
    "ProvisionerImagePullsFail": (
        {'provisioner_image_pulls_total{result="failed"}': "0x5 1x5 4x60"}, 30, 'severity="warning"'),
    "ProvisionerImagesNotServed": (
        {f'{IMAGES}"2xx"}}': "0+90x60", f'{IMAGES}"5xx"}}': "0x5 0+9x60"}, 40, 'severity="warning"'),
    "ProvisionerImageSlotsTaken": (
        {f'{IMAGES}"2xx"}}': "0+40x90", f'{IMAGES}"503"}}': "0x5 0+90x90"}, 60, 'severity="info"'),
    "ProvisionerDHCPWorkersDead": (
        {"provisioner_dhcp_workers": "2x60", "provisioner_dhcp_workers_ready": "2x5 1x60"}, 20, 'severity="warning"'),
    "ProvisionerDHCPNoAnswers": (
        {'provisioner_dhcp_messages_total{client="x86_64_pxe",relayed="true",type="discover"}': "0+2x60",
         'provisioner_dhcp_answers_total{answer="offer"}': "7x60",
         'provisioner_dhcp_answers_total{answer="offer_lent"}': "0x60"}, 30, 'severity="critical"'),
    "ProvisionerDHCPDrops": (
        {'provisioner_dhcp_dropped_total{reason="unknown_relay"}': "0x5 0+2x60"}, 40,
        'severity="warning",reason="unknown_relay"'),
    "ProvisionerDHCPFaults": (
        {'provisioner_dhcp_faults_total{fault="receive_failed"}': "0x5 0+1x60"}, 40,
        'severity="warning",fault="receive_failed"'),
    "ProvisionerScriptsLate": (
        {"provisioner_scripts_pending_seconds": "0x5 60+60x60"}, 20, 'severity="warning"'),
    "ProvisionerProgramRestarts": (
        {'provisioner_program_restarts_total{program="nginx"}': "0x5 1x5 4x60"}, 30,
        'severity="warning",program="nginx"'),
    "ProvisionerFalseFiles": (
        {'provisioner_cache_fetches_total{result="false"}': "0x5 1x60"}, 20, 'severity="warning"'),
    "ProvisionerDPUAway": ({'provisioner_dpus{state="NotReady"}': "0x5 2x90"}, 60, 'severity="warning"'),
    "ProvisionerAttachmentsWait": (
        {'provisioner_attachment_oldest_wait_seconds{reason="WaitsForDPU"}': "60+60x60"}, 30,
        'severity="warning",reason="WaitsForDPU"'),
    "ProvisionerReflectorDown": (
        {'provisioner_reflectors{state="BgpdFailed"}': "0x5 1x60",
         'provisioner_reflectors{state="Serving"}': "2x5 1x60"},
        30, 'severity="warning",state="BgpdFailed"'),
    "ProvisionerNoReflector": (
        {'provisioner_reflectors{state="Silent"}': "0x5 2x60", 'provisioner_reflectors{state="Serving"}': "2x5 0x60"},
        30,
        'severity="critical"'),
    "ProvisionerRoutesNotExchanged": (
        {'provisioner_dpus_exchanging{exchanged="False"}': "0x5 1x60"}, 40, 'severity="warning"'),
}  # fmt: skip
QUIET: dict[str, tuple[Series, int]] = {
    "ProvisionerServiceHangs": ({'provisioner_liveness_check{check="workers"}': "1x4 0 1x60"}, 8),
    "ProvisionerControllerNotReady": ({'provisioner_readiness_check{check="api-server"}': "1x4 0x6 1x60"}, 16),
    "ProvisionerLeaseFlaps": (
        {'provisioner_lease_transitions_total{change="Lost",lease="provisioner-controller"}': "0x5 1x5 2x60",
         'provisioner_lease_transitions_total{change="Released",lease="provisioner-controller"}': "0x5 1x5 2x5 9x60"},
        40),
    "ProvisionerQueueStuck": ({'provisioner_queue_oldest_seconds{controller="boot"}': "0x5 60+60x12 5x60"}, 30),
    "ProvisionerReconcileHangs": ({'provisioner_reconcile_longest_seconds{controller="boot"}': "0x5 60+60x3 0x60"}, 20),
    "ProvisionerReconcilesFail": (
        {'provisioner_reconcile_errors_total{controller="boot",error="Retryable"}': "0x5 1+1x60",
         'provisioner_reconcile_errors_total{controller="boot",error="Failed"}': "0x5 1x60"}, 20),
    "ProvisionerAPIErrors": (
        {'provisioner_api_requests_total{code="2xx",resource="servers",verb="list"}': "0+30x60",
         'provisioner_api_requests_total{code="409",resource="servers",verb="list"}': "0+30x60",
         'provisioner_api_requests_total{code="none",resource="servers",verb="list"}': "0x5 0+3x60"}, 40),
    "ProvisionerAPIForbidden": (
        {'provisioner_api_requests_total{code="403",resource="servers",verb="list"}': "0x5 0+1x5 5x90"}, 50),
    "ProvisionerAPISlow": (
        {'provisioner_api_request_seconds_sum{resource="servers",verb="list"}': "0+10x90",
         'provisioner_api_request_seconds_count{resource="servers",verb="list"}': "0+20x90",
         'provisioner_api_request_seconds_sum{resource="servers",verb="watch"}': "0+400x90",
         'provisioner_api_request_seconds_count{resource="servers",verb="watch"}': "0+20x90"}, 60),
    "ProvisionerWatchStale": (
        {'provisioner_watch_age_seconds{kind="Node"}': "60x60", 'provisioner_watch_synced{kind="Node"}': "0x3 1x60"},
        20),
    "ProvisionerCertificateEndsSoon": (
        {'provisioner_certificate_expiry_timestamp_seconds{purpose="join"}': f"{13 * DAY}x3 {90 * DAY}x60",
         'provisioner_certificate_expiry_timestamp_seconds{purpose="join",instance="short-lived"}': f"{5 * DAY}x60",
         'provisioner_certificate_begin_timestamp_seconds{purpose="join",instance="short-lived"}': f"{-2 * DAY}x60"},
        20),
    "ProvisionerCertificateEnds": (
        {'provisioner_certificate_expiry_timestamp_seconds{purpose="join"}': f"{13 * DAY}x60",
         'provisioner_certificate_expiry_timestamp_seconds{purpose="join",instance="short-lived"}': f"{DAY}x60",
         'provisioner_certificate_begin_timestamp_seconds{purpose="join",instance="short-lived"}': f"{-1 * DAY}x60"},
        20),
    "ProvisionerStagesTimeOut": (
        {'provisioner_boot_stage_timeouts_total{stage="Root"}': "0x5 2x5 5x60",
         'provisioner_boots_ordered_total{reason="Requested"}': "0x5 200x60"}, 30),
    "ProvisionerBootsLate": ({'provisioner_boots_late{stage="Firmware"}': "0x5 5x10 4x60"}, 50),
    "ProvisionerBMCsFail": (
        {f'{BMCS}"Well"}}': "1000x60", f'{BMCS}"BMCUnreachable"}}': "0x5 4x60", f'{BMCS}"NotAsked"}}': "50x60"}, 30),
    "ProvisionerImageMissing": ({'provisioner_images_missing{state="Absent"}': "0x5 1x6 0x60"}, 30),
    "ProvisionerCertificatesDenied": (
        {'provisioner_certificates_total{outcome="OldCertificate",signer="client"}': "0x5 1x60",
         'provisioner_certificates_total{outcome="Approved",signer="client"}': "0+5x60"}, 30),
    "ProvisionerJoinsRefused": (
        {'provisioner_joins_total{outcome="denied",reason="WrongImage"}': "0x5 3x60",
         'provisioner_joins_total{outcome="not_yet",reason="NotOrdered"}': "0+9x60"}, 30),
    "ProvisionerNoBootHost": ({'provisioner_build_info{component="boot",version="0.2.0"}': "1x4 _x3 1x60"}, 10),
    "ProvisionerBootHostDown": (
        {'provisioner_build_info{component="boot",version="0.1.0",instance="a"}': "1x10 _x60",
         'provisioner_build_info{component="boot",version="0.2.0",instance="a"}': "_x10 1x60"}, 30),
    "ProvisionerBootHostNotReady": (
        {'provisioner_readiness_check{check="nginx"}': "1x5 0x3 1x60",
         'provisioner_readiness_check{check="api-server"}': "0x60"}, 20),
    "ProvisionerBootDiskFull": (
        {"provisioner_image_store_free_bytes": "50e9x5 11e9x60", "provisioner_image_store_size_bytes": "100e9x60",
         "provisioner_state_free_bytes": "2e9x60"}, 30),
    "ProvisionerBootHostLacksImages": ({'provisioner_image_store_images{state="incomplete"}': "0x5 1x20 0x60"}, 50),
    "ProvisionerImagePullsFail": (
        {'provisioner_image_pulls_total{result="failed"}': "0x5 2x60",
         'provisioner_image_pulls_total{result="succeeded"}': "0+3x60"}, 30),
    "ProvisionerImagesNotServed": (
        {f'{IMAGES}"2xx"}}': "0+90x60", f'{IMAGES}"5xx"}}': "0x5 0+1x60", f'{IMAGES}"503"}}': "0+90x60",
         'provisioner_http_requests_total{class="other",code="4xx"}': "0+90x60"}, 40),
    "ProvisionerImageSlotsTaken": ({f'{IMAGES}"2xx"}}': "0+90x90", f'{IMAGES}"503"}}': "0x5 0+60x90"}, 60),
    "ProvisionerDHCPWorkersDead": (
        {"provisioner_dhcp_workers": "2x60", "provisioner_dhcp_workers_ready": "2x5 1 2x60"}, 20),
    "ProvisionerDHCPNoAnswers": (
        {'provisioner_dhcp_messages_total{client="x86_64_pxe",relayed="true",type="discover"}': "0+2x60",
         'provisioner_dhcp_answers_total{answer="offer"}': "0+1x60",
         'provisioner_dhcp_answers_total{answer="offer_lent"}': "0x60"}, 30),
    "ProvisionerDHCPDrops": (
        {'provisioner_dhcp_dropped_total{reason="unknown_relay"}': "0x5 9x60",
         'provisioner_dhcp_dropped_total{reason="for_another_server"}': "0+9x60"}, 40),
    "ProvisionerDHCPFaults": (
        {'provisioner_dhcp_faults_total{fault="receive_failed"}': "0x5 3x60",
         'provisioner_dhcp_faults_total{fault="send_failed"}': "0+3x60"}, 40),
    "ProvisionerScriptsLate": ({"provisioner_scripts_pending_seconds": "0x5 60+60x2 0x60"}, 20),
    "ProvisionerProgramRestarts": ({'provisioner_program_restarts_total{program="nginx"}': "0x5 2x60"}, 30),
    "ProvisionerFalseFiles": (
        {'provisioner_cache_fetches_total{result="false"}': "2x60",
         'provisioner_cache_fetches_total{result="failed"}': "0+1x60"}, 20),
    "ProvisionerDPUAway": ({'provisioner_dpus{state="NotReady"}': "0x5 2x30 0x90"}, 60),
    "ProvisionerAttachmentsWait": (
        {'provisioner_attachment_oldest_wait_seconds{reason="WaitsForDPU"}': "60x60",
         'provisioner_attachment_oldest_wait_seconds{reason="Quarantined"}': "60+60x60",
         'provisioner_attachment_oldest_wait_seconds{reason="VPCNotFound"}': "60+60x60"}, 30),
    "ProvisionerReflectorDown": (
        {'provisioner_reflectors{state="BgpdFailed"}': "0x5 1x3 0x60",
         'provisioner_reflectors{state="Serving"}': "2x60"},
        30),
    "ProvisionerNoReflector": (
        {'provisioner_reflectors{state="Silent"}': "1x60", 'provisioner_reflectors{state="Serving"}': "1x60"}, 30),
    "ProvisionerRoutesNotExchanged": (
        {'provisioner_dpus_exchanging{exchanged="False"}': "0x5 1x10 0x60",
         'provisioner_dpus_exchanging{exchanged="True"}': "9x60"}, 40),
}  # fmt: skip


def check(folder: Path, cases: Mapping[str, tuple[Series, int, str | None]]) -> None:
    """Each alert by its own rule alone, all in one run: promtool evaluates every rule of a file in every test."""
    paths = []
    for alert, (series, minute, labels) in cases.items():
        asked = f'ALERTS{{alertname="{alert}",alertstate="firing"'
        expected = [] if labels is None else [{"labels": f"{asked},{labels}}}", "value": 1}]
        question = {"expr": f"{asked}}}", "eval_time": f"{minute}m", "exp_samples": expected}
        given = [{"series": name, "values": values} for name, values in series.items()]
        test = {"name": alert, "interval": "1m", "input_series": given, "promql_expr_test": [question]}
        rules, path = folder / f"{alert}.yaml", folder / f"{alert}.test.yaml"
        rules.write_text(json.dumps({"groups": [{"name": "a", "rules": [RULES[alert]]}]}))
        path.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}))
        paths.append(str(path))
    said = promtool("test", "rules", *paths)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.programs
def test_each_alert_fires_on_what_it_is_for(tmp_path: Path) -> None:
    check(tmp_path, dict(FIRING))


@pytest.mark.programs
def test_each_alert_is_quiet_on_its_honest_twin(tmp_path: Path) -> None:
    check(tmp_path, {alert: (series, minute, None) for alert, (series, minute) in QUIET.items()})


@pytest.mark.programs
def test_every_alert_is_shown_firing_and_quiet_and_promtool_takes_them_all() -> None:
    shown = [alert for alert in RULES if alert not in ELSEWHERE]
    assert (list(FIRING), list(QUIET)) == (shown, shown)
    said = promtool("check", "rules", "--lint=all", str(ALERTS))
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_series_of_these_tests_are_served_with_these_labels(tmp_path: Path) -> None:
    fleet, host = FleetOfTests(), HostOfTests(tmp_path)
    fleet.live()
    host.live()
    texts = (fleet.text(), host.text(), cache_of_tests(tmp_path))
    served = {(name, key, value) for text in texts for name, labels, _ in samples(text)
              for key, value in (*labels.items(), ("", ""))}  # fmt: skip
    from_condition = {"reason", "error", "instance", "version", "kind"}
    for cases in (FIRING, QUIET):
        for alert, (series, *_) in cases.items():
            for name, labels, _ in samples("\n".join(f"{each} 0" for each in series)):
                pairs = [pair for pair in labels.items() if pair[0] not in from_condition] or [("", "")]
                assert {(name, *pair) for pair in pairs} <= served, (alert, name, labels)


def test_every_metric_of_an_alert_is_served(tmp_path: Path) -> None:
    fleet, host = FleetOfTests(), HostOfTests(tmp_path)
    fleet.live()
    served = families(fleet.text()) | families(host.text()) | families(cache_of_tests(tmp_path))
    for alert, rule in RULES.items():
        named = set(re.findall(r"\bprovisioner_[a-z0-9_]+", rule["expr"]))
        assert named <= set(served), alert


def slug(title: str) -> str:
    """The anchor of a heading, as Markdown is rendered."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def anchors(document: str) -> set[str]:
    text = (ROOT / document).read_text()
    return {slug(title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_has_a_severity_words_and_an_entry_of_the_runbook_that_exists(alert: str) -> None:
    rule = RULES[alert]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert len(rule["annotations"]["summary"]) <= 120
    document, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert anchor in anchors(document)
