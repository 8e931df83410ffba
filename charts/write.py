"""`make chart`: writes the parts of charts/provisioner that have their source elsewhere. tests/chart compares them.

CRDs come from the dataclasses, accounts and policies from provisioner/cli/data (as `provisioner manifests` prints
them), alerts and dashboards from docs. Helm never evaluates them: templates take them in by `.Files`, so that what is
in double braces reaches Prometheus and Grafana as it is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from provisioner import __version__
from provisioner.api.crd import all_crds
from provisioner.cli.service.manifests import DATA, read_data
from provisioner.cluster.resources import SYSTEM

HERE: Final = Path(__file__).parent / "provisioner"
DOCS: Final = Path(__file__).parents[1] / "docs"
WRITTEN: Final = ("crds", "manifests", "monitoring")
"""Folders of the chart in which every file is written here."""

KEEP: Final = "helm.sh/resource-policy: keep"
_GENERATED: Final = "# Written by `make chart`.\n"
_BETWEEN: Final = re.compile(r"^---\n", re.MULTILINE)
_VERSIONS: Final = re.compile(r"^(version|appVersion): .*$", re.MULTILINE)


def chart_files(chart_yaml: str) -> dict[str, str]:
    """What is written, by its path in the chart. `chart_yaml`: the present Chart.yaml, of which the version is set."""
    written = {"Chart.yaml": _VERSIONS.sub(lambda found: f'{found.group(1)}: "{__version__}"', chart_yaml)}
    written["crds.txt"] = "".join(f"{crd['metadata']['name']}\n" for crd in all_crds())
    for crd in all_crds():
        written[f"crds/{crd['metadata']['name']}.yaml"] = _GENERATED + yaml.safe_dump(crd, sort_keys=False, width=120)
    for name in DATA:
        parts = [part for part in _BETWEEN.split(read_data(name)) if yaml.safe_load(part)]
        written[f"manifests/{name}"] = "---\n".join(_kept(part) for part in parts)
    for alerts in sorted(DOCS.glob("prometheus-alerts*.yaml")):
        written[f"monitoring/alerts/{alerts.name.removeprefix('prometheus-')}"] = alerts.read_text()
    for dashboard in sorted((DOCS / "dashboards").glob("*.json")):
        written[f"monitoring/dashboards/{dashboard.name}"] = dashboard.read_text()
    return written


def _kept(document: str) -> str:
    """A Namespace stays when the release goes: people's Secrets are in it. Other documents are as they were."""
    body: dict[str, Any] = yaml.safe_load(document)
    if body["kind"] != "Namespace" or body["metadata"]["name"] == SYSTEM:
        return document
    name = f"  name: {body['metadata']['name']}\n"
    return document.replace(name, f"{name}  annotations: {{{KEEP}}}\n", 1)


def main() -> int:
    written = chart_files((HERE / "Chart.yaml").read_text())
    for path, text in written.items():
        (HERE / path).parent.mkdir(parents=True, exist_ok=True)
        (HERE / path).write_text(text)
    for stale in (path for folder in WRITTEN for path in (HERE / folder).rglob("*") if path.is_file()):
        if str(stale.relative_to(HERE)) not in written:
            stale.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
