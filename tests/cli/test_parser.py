"""Each YAML, JSON and CSV file that somebody hands to a command is read by one parser with bounds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PARSER: Final = "provisioner/api/machinery/documents.py"
LOADERS: Final = {
    "yaml": {"load", "load_all", "safe_load", "safe_load_all", "full_load", "unsafe_load", "compose", "compose_all",
             "parse", "scan"},
    "json": {"load", "loads"},
    "csv": {"reader", "DictReader"},
}  # fmt: skip
APART: Final = ("provisioner/node/", "provisioner/network/agent/")
"""What stands alone in images and on DPUs."""
OTHERS: Final[Mapping[str, str]] = {
    "provisioner/api/machinery/codec.py": "what this project has written itself",
    "provisioner/attestation/challenge.py": "what was sealed by a key of ours",
    "provisioner/boot/host/image_slots.py": "what the kernel's `ip` says",
    "provisioner/boot/observe/trace/lines.py": "a line of nginx's log, of at most so many bytes",
    "provisioner/cli/service/manifests.py": "what the package has in it",
    "provisioner/cluster/bounded_json.py": "the API server's answers, whose size is bounded",
    "provisioner/cluster/changes.py": "the API server's answers, whose size is bounded",
    "provisioner/cluster/failures.py": "the API server's answers, whose size is bounded",
    "provisioner/cluster/storage_migration.py": "the API server's answers, whose size is bounded",
    "provisioner/cluster/transport.py": "the API server's answers, whose size is bounded",
    "provisioner/health/jobs/outcome.py": "a pod's message, of at most 4 KiB",
    "provisioner/image/base.py": "what this project has written itself",
    "provisioner/image/containerd/archive.py": "a container image that the build was given, in files of bounded size",
    "provisioner/image/gates/documents/sizes.py": "a document of an image whose signature was checked",
    "provisioner/image/gates/packages/records.py": "a layer that the build has made",
    "provisioner/image/golang/module.py": "what Go's own command says",
    "provisioner/image/registry/artifact.py": "a registry's answers, whose size is bounded",
    "provisioner/image/registry/failures.py": "a registry's answers, whose size is bounded",
    "provisioner/image/registry/tokens.py": "a registry's answers, whose size is bounded",
    "provisioner/image/retention/references.py": "the annotations of a Node, whose size a policy bounds",
    "provisioner/inventory/register.py": "keys of managedFields, which the API server writes",
    "provisioner/join/admission/request.py": "a request of bounded size, with a parser that refuses repeats",
    "provisioner/join/credentials/web.py": "a request of the API server, of bounded size",
    "provisioner/network/evpn/bgpd.py": "what FRR's own command says",
    "provisioner/power/bmc/ipmi_child.py": "its parent's requests",
    "provisioner/power/bmc/ipmi_processes.py": "its child's answers",
    "provisioner/power/bmc/redfish_connection.py": "a BMC's answers, with bounds of their own",
}
"""Who else reads such text, and why it is no file of a stranger."""


def loads(path: Path) -> Iterator[str]:
    """The lines of a module that read YAML, JSON or CSV by themselves."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in LOADERS.get(node.value.id, ()):
                yield f"{path.relative_to(ROOT)}:{node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{path.relative_to(ROOT)}:{node.lineno}" for each in node.names
                        if each.name in LOADERS.get(node.module or "", ()))  # fmt: skip


def test_each_file_is_read_by_the_parser_alone() -> None:
    modules = [
        path
        for path in sorted((ROOT / "provisioner").rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(APART) and str(path.relative_to(ROOT)) not in {PARSER, *OTHERS}
    ]
    assert [line for path in modules for line in loads(path)] == [], "use provisioner.api.machinery.documents"
    assert [other for other in OTHERS if not list(loads(ROOT / other))] == [], "exempt without need"
