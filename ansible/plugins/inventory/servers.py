"""Servers as Ansible's inventory: grouped by rack, pool, lifecycle, conditions and image."""

from __future__ import annotations

DOCUMENTATION = r"""
name: servers
short_description: Servers of a provisioner as inventory
version_added: 0.2.0
description:
  - Reads the Servers of a cluster, in pages, and makes a host of each, with groups by rack, pool, lifecycle, condition
    and image. C(ansible_host) is the server's address on the boot network.
  - Nothing is read beside Servers, so that the role C(provisioner-viewer) suffices. No password is in it. What the
    cluster says is data, and is never evaluated as a template.
  - The file must end with C(provisioner.yml) or C(provisioner.yaml).
author: The authors of provisioner
extends_documentation_fragment:
  - provisioner.provisioner.cluster
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description:
      - Names this plugin.
    type: str
    required: true
    choices: [provisioner.provisioner.servers]
  rack:
    description:
      - Only servers of that rack.
    type: str
  pool:
    description:
      - Only servers that shall be in that NodePool.
    type: str
  selector:
    description:
      - Only servers with these labels, as kubectl selects.
    type: str
  acceptance:
    description:
      - Only servers of which a person has said so. Machines that were discovered and that nobody knows are V(Pending).
    type: list
    elements: str
    choices: [Pending, Accepted, Rejected]
    default: [Accepted]
  group_by:
    description:
      - Groups that are made, with the prefixes C(rack_), C(pool_), C(lifecycle_), C(condition_) and C(image_). A
        condition's group ends with its status, such as C(condition_ready_true). DPUs are in the group C(dpus) always.
    type: list
    elements: str
    choices: [rack, pool, lifecycle, condition, image]
    default: [rack, pool, lifecycle, condition, image]
"""

EXAMPLES = r"""
# rack.provisioner.yml: all servers
plugin: provisioner.provisioner.servers

# r01.provisioner.yml: one rack, with groups of one's own; kept for five minutes
# plugin: provisioner.provisioner.servers
# kubeconfig: /etc/provisioner/viewer.kubeconfig
# rack: r01
# keyed_groups:
#   - {key: provisioner_labels['example.com/generation'], prefix: generation}
# compose:
#   ansible_user: "'root'"
# cache: true
# cache_plugin: ansible.builtin.jsonfile
# cache_connection: ~/.cache/provisioner-inventory
# cache_timeout: 300
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

try:
    from provisioner.api import Server
    from provisioner.api.machinery.errors import NeedsHuman, ProvisionerError
    from provisioner.cluster.client import BUSY_SECONDS, Cluster
    from provisioner.cluster.resources import of

    MISSING = None
except ImportError as error:
    MISSING = error

_VARIABLES = (
    ("rack", ("spec", "rackRef")),
    ("position", ("spec", "position")),
    ("serial_number", ("spec", "serialNumber")),
    ("architecture", ("spec", "architecture")),
    ("mac", ("spec", "bootMACAddress")),
    ("interfaces", ("spec", "interfaces")),
    ("acceptance", ("spec", "acceptance")),
    ("tenant", ("spec", "tenant")),
    ("dpu_of", ("spec", "dpu", "hostRef")),
    ("bmc_address", ("spec", "bmc", "address")),
    ("bmc_protocol", ("spec", "bmc", "protocol")),
    ("address", ("status", "address")),
    ("lifecycle", ("status", "lifecycle")),
    ("boot_stage", ("status", "bootStage")),
    ("image", ("status", "imageRef")),
    ("image_digest", ("status", "imageDigest")),
    ("assigned_image", ("status", "assignedImageRef")),
    ("node", ("status", "nodeRef")),
    ("power_state", ("status", "power", "state")),
)
"""Of a host, each with the prefix `provisioner_`, and where it stands in the Server; None where the Server lacks it."""


def trim(body: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept, and cached, of a Server. Pure."""
    kept = {name: _at(body, path) for name, path in _VARIABLES}
    spec, status = body["spec"], body.get("status") or {}
    kept["pool"] = status.get("nodePoolRef") or spec.get("nodePoolRef")
    kept["wanted_pool"] = spec.get("nodePoolRef")
    kept["conditions"] = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    kept["labels"] = body["metadata"].get("labels") or {}
    kept["name"] = body["metadata"]["name"]
    return kept


def _at(body: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        body = (body or {}).get(key)
    return body


def groups_of(kept: Mapping[str, Any], group_by: list[str]) -> Iterator[str]:
    """Names of the groups, not yet made safe. Pure."""
    for kind in ("rack", "pool", "lifecycle", "image"):
        if kind in group_by and kept[kind]:
            yield f"{kind}_{kept[kind].lower() if kind == 'lifecycle' else kept[kind]}"
    if "condition" in group_by:
        for type_, status in kept["conditions"].items():
            yield f"condition_{type_}_{status}".lower()
    if kept["dpu_of"]:
        yield "dpus"


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """The plugin."""

    NAME = "provisioner.provisioner.servers"

    def verify_file(self, path: str) -> bool:
        """Whether the file is for this plugin, by its name."""
        return super().verify_file(path) and path.endswith(("provisioner.yml", "provisioner.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory. Raises: AnsibleParserError with the remedy."""
        super().parse(inventory, loader, path, cache)
        unknown = sorted(set(self._read_config_data(path)) - set(self.get_options()) - {"plugin"})
        if unknown:  # a filter with a spelling mistake would let everything through
            known = ", ".join(sorted(self.get_options()))
            raise AnsibleParserError(
                f"inventory {path}: it has {', '.join(unknown)}, expected one of {known}; correct it"
            )
        if MISSING is not None:
            raise AnsibleParserError(
                f"inventory {path}: the Python package provisioner is not in {sys.executable} ({MISSING}); install it "
                "there, from the collection's own release"
            )
        key, uses_cache = self.get_cache_key(path), self.get_option("cache")
        servers = None
        if uses_cache and cache:
            servers = self._cache.get(key)
        if servers is None:
            servers = self._read(path)
            if uses_cache:
                self._cache[key] = servers
        self._fill(servers)

    def _read(self, path: str) -> list[dict[str, Any]]:
        accepted = set(self.get_option("acceptance"))
        fields = {"spec.rackRef": self.get_option("rack"), "spec.nodePoolRef": self.get_option("pool")}
        kubeconfig = self.get_option("kubeconfig")
        try:
            cluster = Cluster.connect(
                Path(kubeconfig) if kubeconfig else None,
                user_agent="provisioner-ansible",
                context=self.get_option("context"),
                as_user=self.get_option("impersonate_user"),
                as_groups=self.get_option("impersonate_groups"),
                busy_seconds=BUSY_SECONDS,
            )
            found = cluster.list(
                of(Server),
                label_selector=self.get_option("selector"),
                field_selector=",".join(f"{name}={value}" for name, value in fields.items() if value) or None,
                trim=lambda body: trim(body) if body["spec"].get("acceptance", "Pending") in accepted else None,
            )
        except NeedsHuman as error:
            raise AnsibleParserError(f"inventory {path}: {error}") from error
        except ProvisionerError as error:
            raise AnsibleParserError(f"inventory {path}: {error}; is the API server reachable? try again") from error
        return found.items

    def _fill(self, servers: list[dict[str, Any]]) -> None:
        group_by, strict = self.get_option("group_by"), self.get_option("strict")
        compose, groups, keyed = (self.get_option(name) for name in ("compose", "groups", "keyed_groups"))
        made: dict[str, str] = {}
        for kept in servers:
            name = self.inventory.add_host(kept["name"])
            variables = {f"provisioner_{key}": value for key, value in kept.items() if key != "name"}
            if kept["address"]:
                variables["ansible_host"] = kept["address"]
            host = self.inventory.get_host(name)
            for key, value in variables.items():
                host.set_variable(key, value)
            for group in groups_of(kept, group_by):
                if group not in made:
                    made[group] = self.inventory.add_group(self._sanitize_group_name(group))
                self.inventory.add_child(made[group], name)
            if compose:
                self._set_composite_vars(compose, variables, name, strict=strict)
            if groups:
                self._add_host_to_composed_groups(groups, variables, name, strict=strict)
            if keyed:
                self._add_host_to_keyed_groups(keyed, variables, name, strict=strict)
