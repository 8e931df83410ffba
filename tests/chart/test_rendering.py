"""What `helm template` makes of the chart is what `provisioner manifests` prints, and pods that are held to little."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.pack import pack
from charts.write import HERE, WRITTEN, chart_files
from provisioner import __version__
from provisioner.cli.service.controller import NAMES
from provisioner.cli.service.manifests import all_manifests
from provisioner.cluster.resources import SYSTEM
from tests.chart.helm import MANIFESTS_ONLY, MINIMAL, Helm, HelmRefused, key

KEEP = {"helm.sh/resource-policy": "keep"}
FULL = HERE / "ci" / "full-values.yaml"
CI = sorted((HERE / "ci").glob("*.yaml"))
DOCS = HERE.parents[1] / "docs"
WORKLOADS = ("Deployment", "DaemonSet")


def test_what_is_written_from_elsewhere_is_up_to_date() -> None:
    written = chart_files((HERE / "Chart.yaml").read_text())
    there = {str(path.relative_to(HERE)) for folder in WRITTEN for path in (HERE / folder).rglob("*") if path.is_file()}
    assert {path for path in written if path.split("/")[0] in WRITTEN} == there, "run `make chart`"
    for path, text in written.items():
        assert (HERE / path).read_text() == text, f"{path} is not what its source says: run `make chart`"


def test_its_version_is_the_products() -> None:
    chart = yaml.safe_load((HERE / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


@pytest.mark.parametrize("values", [MINIMAL, MANIFESTS_ONLY], ids=lambda path: path.stem)
def test_its_manifests_are_those_that_the_command_prints_object_for_object(helm: Helm, values: Path) -> None:
    wanted = {key(body): body for body in all_manifests()}
    rendered = {key(body): body for body in helm.template("--include-crds", "-f", values)}
    for each, body in wanted.items():
        found = rendered[each]
        if body["kind"] == "Namespace" and body["metadata"]["name"] != SYSTEM:
            assert found["metadata"].pop("annotations") == KEEP
        assert found == body
    more = rendered.keys() - wanted.keys()
    assert {kind for _, kind, _, _ in more} <= {"Deployment", "PodDisruptionBudget", "NetworkPolicy"}
    assert bool(more) is (values == MINIMAL)


def test_each_object_is_there_once(helm: Helm) -> None:
    rendered = [key(body) for body in helm.template("--include-crds", "-f", FULL)]
    assert len(rendered) == len(set(rendered))


def test_kinds_come_before_rights_and_rights_before_pods(helm: Helm) -> None:
    kinds = [body["kind"] for body in helm.template("-f", FULL)]
    first = {kind: kinds.index(kind) for kind in kinds}
    last = {kind: len(kinds) - 1 - kinds[::-1].index(kind) for kind in kinds}
    for earlier in ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
        assert last[earlier] < first["Deployment"]


@pytest.mark.parametrize("values", [HERE / "values.yaml", *CI], ids=lambda path: path.stem)
def test_it_is_clean_by_helms_own_lint(helm: Helm, values: Path) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", HERE, "-n", SYSTEM, "-f", values)


def test_another_namespace_is_refused_with_the_remedy(helm: Helm) -> None:
    with pytest.raises(HelmRefused, match="add `--namespace provisioner-system --create-namespace`"):
        helm.template("-f", MINIMAL, namespace="default")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("image.repository=", "push the image that `make package` made"),
        ("bootURL=", "say where servers reach the boot service"),
        ("boot.enabled=true", "boot.apiServer is not set"),
        ("boot.enabled=true,boot.apiServer=https://10.80.0.1:6443,boot.images.registry=oci://r/i", "keyConfigMap"),
        ("controller.replica=3", "at '/controller': additional properties 'replica' not allowed"),
        ("replicas=3", "additional properties 'replicas' not allowed"),
        ("controller.replicas=two", "at '/controller/replicas': got string, want integer"),
        ("controller.groups={power,network,networks}", "at '/controller/groups/2'"),
        ("bootURL=10.80.0.1", "at '/bootURL'"),
        ("boot.address=10.80.0.256", "at '/boot/address'"),
        ("boot.dhcp.workers=0", "at '/boot/dhcp/workers'"),
        ("boot.enabled=true,boot.apiServer=https://10.80.0.1:6443,boot.nodeSelector=null", "every host of the cluster"),
        ("image.digest=sha256:abc", "at '/image/digest'"),
        ("monitoring.alerts.enabled=yes", "at '/monitoring/alerts/enabled'"),
        ("crds.check=maybe", "at '/crds/check': got string, want boolean"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(helm: Helm, values: str, words: str) -> None:
    with pytest.raises(HelmRefused) as refused:
        helm.template("-f", MINIMAL, "--set", values)
    assert words in str(refused.value)


def test_each_value_has_its_place_in_the_schema_and_a_comment() -> None:
    """A value that the schema does not know would be refused; one that values.yaml lacks is told to nobody."""
    schema = json.loads((HERE / "values.schema.json").read_text())
    values = yaml.safe_load((HERE / "values.yaml").read_text())

    def compare(schema: dict[str, Any], values: dict[str, Any], place: str) -> None:
        properties = schema["properties"]
        assert properties.keys() - {"global"} == values.keys(), place
        assert schema["additionalProperties"] is False, place
        for name, each in values.items():
            if "properties" in properties[name] and name != "resources":
                compare(properties[name], each, f"{place}.{name}")

    compare(schema, values, "")


def _workloads(rendered: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {body["metadata"]["name"]: body for body in rendered if body["kind"] in WORKLOADS}


def test_controllers_run_by_two_apart_from_each_other_and_from_the_servers_that_they_reboot(helm: Helm) -> None:
    (body,) = _workloads(helm.template("-f", MINIMAL)).values()
    pod = body["spec"]["template"]["spec"]
    assert body["spec"]["replicas"] == 2
    (constraint,) = pod["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "provisioner.dev/pool", "operator": "DoesNotExist"}]
    assert pod["serviceAccountName"] == "provisioner-controller"
    (anywhere,) = _workloads(helm.template("-f", MINIMAL, "--set", "controller.onServers=true")).values()
    assert "affinity" not in anywhere["spec"]["template"]["spec"]


def test_no_container_may_more_than_it_needs(helm: Helm) -> None:
    for name, body in _workloads(helm.template("-f", FULL)).items():
        pod = body["spec"]["template"]["spec"]
        assert pod["enableServiceLinks"] is False, "Services of the namespace would be taken for options"
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            held = container["securityContext"]
            assert held["readOnlyRootFilesystem"] is True
            assert held["allowPrivilegeEscalation"] is False
            assert held["capabilities"]["drop"] == ["ALL"]
            assert container["resources"]["limits"]["memory"]
            if name != "provisioner-boot":
                assert pod["securityContext"]["runAsNonRoot"] is True
                assert "add" not in held["capabilities"]
                assert not pod.get("hostNetwork")


def test_metrics_are_read_by_pods_of_the_cluster_alone_unless_a_site_names_others(helm: Helm) -> None:
    def allowed(*more: str) -> Any:
        policies = [body for body in helm.template("-f", FULL, *more) if body["kind"] == "NetworkPolicy"]
        return next(each["spec"]["ingress"] for each in policies if each["metadata"]["name"].endswith("controller"))

    assert allowed("--set-json", "networkPolicy.metricsFrom=[]") == [
        {"ports": [{"port": 9464}], "from": [{"namespaceSelector": {}}]}
    ]
    named = [{"ipBlock": {"cidr": "10.1.0.0/16"}}]
    assert allowed("--set-json", f"networkPolicy.metricsFrom={json.dumps(named)}")[0]["from"] == named


def test_groups_apart_have_an_account_a_lease_and_a_budget_each(helm: Helm) -> None:
    rendered = helm.template("-f", MINIMAL, "--set", "controller.apart=true")
    workloads = _workloads(rendered)
    assert set(workloads) == {f"provisioner-{group}" for group in NAMES}
    accounts = {body["metadata"]["name"] for body in rendered if body["kind"] == "ServiceAccount"}
    selectors = set()
    for name, body in workloads.items():
        pod = body["spec"]["template"]
        assert pod["spec"]["serviceAccountName"] == name
        assert name in accounts
        assert f"--controllers={name.removeprefix('provisioner-')}" in pod["spec"]["containers"][0]["args"]
        labels = body["spec"]["selector"]["matchLabels"]
        assert labels.items() <= pod["metadata"]["labels"].items()
        selectors.add(tuple(sorted(labels.items())))
    assert len(selectors) == len(workloads), "one Deployment would take another's pods for its own"
    budgets = [body for body in rendered if body["kind"] == "PodDisruptionBudget"]
    assert {tuple(sorted(each["spec"]["selector"]["matchLabels"].items())) for each in budgets} == selectors


def _arguments(helm: Helm, name: str, *more: str) -> list[str]:
    body = _workloads(helm.template("-f", FULL, *more))[name]
    arguments: list[str] = body["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


def test_the_commands_know_every_argument(helm: Helm) -> None:
    """As click parses them, before anything is done: a flag that the command lacks would crash every pod."""
    for name in _workloads(helm.template("-f", FULL)):
        arguments = [each.replace("$(HOST_ADDRESS)", "10.80.0.1") for each in _arguments(helm, name)]
        command = [sys.executable, "-m", "provisioner.cli", *arguments, "--no-such-flag"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert "no-such-flag" in done.stderr, (name, done.stderr)


def test_alerts_and_dashboards_reach_the_cluster_as_they_are(helm: Helm) -> None:
    rendered = helm.template("-f", FULL)
    rules = {body["metadata"]["name"]: body["spec"] for body in rendered if body["kind"] == "PrometheusRule"}
    assert rules == {
        "provisioner-alerts": yaml.safe_load((DOCS / "prometheus-alerts.yaml").read_text()),
        "provisioner-alerts-gpus": yaml.safe_load((DOCS / "prometheus-alerts-gpus.yaml").read_text()),
    }
    boards = [body for body in rendered if body["kind"] == "ConfigMap"]
    assert len(boards) == len(list((DOCS / "dashboards").glob("*.json"))) > 0
    for board in boards:
        ((name, text),) = board["data"].items()
        assert json.loads(text) == json.loads((DOCS / "dashboards" / name).read_text())


def test_pods_are_scraped_where_the_services_tell(helm: Helm) -> None:
    rendered = helm.template("-f", FULL)
    workloads = _workloads(rendered)
    monitors = [body for body in rendered if body["kind"] == "PodMonitor"]
    assert {each["metadata"]["name"] for each in monitors} == {"provisioner-controller", "provisioner-boot"}
    for monitor in monitors:
        pod = workloads[monitor["metadata"]["name"]]["spec"]["template"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        (container,) = pod["spec"]["containers"]
        (port,) = [each["containerPort"] for each in container["ports"] if each["name"] == endpoint["port"]]
        (address,) = [each for each in container["args"] if each.startswith("--metrics-address=")]
        assert address.endswith(f":{port}")


def test_kubelets_ask_where_the_services_answer(helm: Helm) -> None:
    flags = {"health": "--health-address=", "boot-metrics": "--metrics-address=", "web": "--listen="}
    for body in _workloads(helm.template("-f", FULL)).values():
        (container,) = body["spec"]["template"]["spec"]["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        probes = [container[each] for each in ("livenessProbe", "readinessProbe")]
        assert [each["httpGet"]["path"] for each in probes] == ["/healthz", "/readyz"]
        for probe in probes:
            name = probe["httpGet"]["port"]
            assert any(each.startswith(flags[name]) and each.endswith(f":{ports[name]}") for each in container["args"])


def test_monitoring_is_left_out_where_the_cluster_does_not_know_it(helm: Helm) -> None:
    enabled = "monitoring.podMonitors.enabled=auto,monitoring.alerts.enabled=auto,monitoring.dashboards.enabled=auto"
    without = {body["kind"] for body in helm.template("-f", MINIMAL, "--set", enabled)}
    assert without.isdisjoint({"PodMonitor", "PrometheusRule"})
    kinds = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in ("PodMonitor", "PrometheusRule")]
    known = {body["kind"] for body in helm.template("-f", MINIMAL, "--set", enabled, *kinds)}
    assert known >= {"PodMonitor", "PrometheusRule"}
    assert "PodMonitor" not in {body["kind"] for body in helm.template("-f", MINIMAL, *kinds)}, "off if nobody asks"


def test_the_archive_is_the_same_each_time_and_has_what_helm_packs(helm: Helm, tmp_path: Path) -> None:
    first, second = pack(tmp_path / "first"), pack(tmp_path / "second")
    assert first.name == f"provisioner-{__version__}.tgz"
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as tar:
        assert {each.mtime for each in tar} == {315532800}, "1980: not that of a checkout"
    helm.run("package", HERE, "-d", tmp_path)

    def content(archive: Path) -> dict[str, bytes]:
        with tarfile.open(archive) as tar:
            return {each.name: tar.extractfile(each).read() for each in tar if each.isfile()}  # type: ignore[union-attr]

    ours, helms = content(first), content(tmp_path / first.name)
    assert ours.keys() == helms.keys()
    # Helm writes Chart.yaml anew, in another order.
    assert all(ours[name] == helms[name] for name in ours if not name.endswith("Chart.yaml"))
    assert helm.template("-f", MINIMAL, chart=first) == helm.template("-f", MINIMAL)
