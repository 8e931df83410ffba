"""What the modules share: their options, the cluster, and how they end.

The rules are those of the package `provisioner`, which must be importable where a module runs: nothing of them is
written twice. A module without it says so, and in which Python it was looked for.
"""

from __future__ import annotations

import copy
import json
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

VERSION = "0.2.0"
"""Of this collection."""

try:
    import yaml
except ImportError:
    yaml = None

try:
    import provisioner
    from provisioner.api.machinery.errors import NeedsHuman, NotFound, ProvisionerError
    from provisioner.api.machinery.schema import json_name
    from provisioner.api.machinery.values import parse_mac
    from provisioner.cluster.client import BUSY_SECONDS, Cluster

    MISSING = None
except ImportError:
    MISSING = traceback.format_exc()

CONNECTION = {
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
    "impersonate_user": {"type": "str"},
    "impersonate_groups": {"type": "list", "elements": "str", "default": []},
}
_SECRET = ("password", "bmc_credentials")
_KEPT = ("type", "elements", "choices", "default", "required", "aliases")


def argument_spec(documentation: str) -> dict[str, Any]:
    """The options as a module's own documentation has them: written once."""
    return copy.deepcopy(CONNECTION) | _spec(yaml.safe_load(documentation)["options"])


def _spec(options: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, option in options.items():
        found[name] = {key: option[key] for key in _KEPT if key in option}
        # Said for each, so that Ansible guesses from no name.
        found[name]["no_log"] = name in _SECRET
        if "suboptions" in option:
            found[name]["options"] = _spec(option["suboptions"])
    return found


def make_module(documentation: str, **more: Any) -> AnsibleModule:
    """The module, with check mode. It fails at once where the package is missing or of another version."""
    if yaml is None:  # without it not even the options are known
        print(json.dumps({"failed": True, "msg": missing_required_lib(f"provisioner {VERSION}")}))
        sys.exit(1)
    module = AnsibleModule(argument_spec(documentation), supports_check_mode=True, **more)
    if MISSING is not None:
        module.fail_json(msg=missing_required_lib(f"provisioner {VERSION}"), exception=MISSING)
    if provisioner.__version__.split(".")[:2] != VERSION.split(".")[:2]:
        observed = f"Python package provisioner is {provisioner.__version__} in {sys.executable}"
        module.fail_json(
            msg=f"{observed}, expected {VERSION}, as this collection is; install both from one release",
            observed=observed,
            expected=VERSION,
            remedy="install both from one release",
        )
    return module


def open_cluster(module: AnsibleModule) -> Cluster:
    """The cluster of the options. Raises: NeedsHuman if the kubeconfig is of no use."""
    given = module.params
    return Cluster.connect(
        Path(given["kubeconfig"]) if given["kubeconfig"] else None,
        user_agent="provisioner-ansible",
        context=given["context"],
        as_user=given["impersonate_user"],
        as_groups=given["impersonate_groups"],
        busy_seconds=BUSY_SECONDS,
    )


@contextmanager
def failures(module: AnsibleModule) -> Iterator[None]:
    """Turns the package's errors into a failed task: `msg` says object, observed and expected, `remedy` what to do."""
    try:
        yield
    except NeedsHuman as error:
        module.fail_json(msg=str(error), remedy=error.hint, changed=False)
    except ProvisionerError as error:
        remedy = "is the API server reachable? run the task again"
        module.fail_json(msg=f"{error}; {remedy}", remedy=remedy, changed=False)


def spec_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as fields of the API: its spelling, its MAC addresses; what was not given is left out.

    Raises: Refused for a MAC address that is none.
    """
    return {json_name(name): _value(name, value) for name, value in options.items() if value is not None}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return spec_of(value)
    if isinstance(value, list):
        return [spec_of(item) if isinstance(item, dict) else item for item in value]
    if name.endswith("mac_address") and isinstance(value, str):
        return parse_mac(value)
    return value


def find_object(cluster: Cluster, kind: type, name: str) -> dict[str, Any] | None:
    """The object of that name as it is; None if there is none. Raises: NeedsHuman for what is no name."""
    from provisioner.cluster.resources import of

    try:
        return cluster.find(of(kind), name)
    except ValueError as error:
        raise NotFound(str(error), hint="write a name such as r01-u01") from error


def wait_seconds(module: AnsibleModule) -> float | None:
    """How long `wait_timeout` says to wait; None for without end."""
    return float(module.params["wait_timeout"]) or None
