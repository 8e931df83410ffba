#!/usr/bin/python
"""A packing list: a whole rack, registered at once."""

from __future__ import annotations

DOCUMENTATION = r"""
module: packing_list
short_description: Register racks and servers from a packing list
version_added: 0.2.0
description:
  - Registers all that a packing list names, by the rules of C(provisioner rack register). CSV as vendors send it, or
    YAML and JSON with C(rack), C(defaults) and C(servers).
  - All mistakes are told at once, each with its place and its remedy, and nothing is written then.
  - A list is applied as a whole. What was taken out of it since the last time is given up; servers that it does not
    name are left alone.
  - For an export of NetBox see the filter P(provisioner.provisioner.netbox_packing_list#filter).
author: The authors of provisioner
extends_documentation_fragment:
  - provisioner.provisioner.cluster
attributes:
  check_mode:
    description: The API server decides what a task would change, by a dry run, and writes nothing.
    support: full
  diff_mode:
    description: Fields that change, without passwords.
    support: full
options:
  src:
    description:
      - File on the host where the task runs.
    type: path
  content:
    description:
      - The list itself, as a mapping with C(rack), C(defaults) and C(servers). MAC addresses must be strings there.
    type: dict
  rack:
    description:
      - Rack of the servers in a CSV that has no such column, and to which O(subnets) belong.
    type: str
  subnets:
    description:
      - Subnets of O(rack), as M(provisioner.provisioner.rack) has them. With them the Rack is made, or kept so, too.
    type: list
    elements: dict
    default: []
  pool:
    description:
      - NodePool of the servers in a CSV that has no such column.
    type: str
  columns:
    description:
      - Headers of a CSV by field, such as mac for C(Netz (PXE)), where they are not known by themselves.
    type: dict
    default: {}
  bmc_passwords:
    description:
      - Whether a CSV's columns with user names and passwords of BMCs are written into Secrets of namespace
        provisioner-bmcs. Else they are not read.
    type: bool
    default: false
  bmc_credentials:
    description:
      - User names and passwords of BMCs by the name of the server, to be written into such Secrets. Keep them in
        Ansible Vault.
    type: dict
    default: {}
  acceptance:
    description:
      - Whether these servers may boot. If absent, as the list says, else as it is; a new server is accepted.
    type: str
    choices: [Pending, Accepted, Rejected]
"""

EXAMPLES = r"""
- name: Register what the vendor has delivered
  provisioner.provisioner.packing_list:
    src: deliveries/r01.csv
    rack: r01
    pool: gpu

- name: Register what NetBox knows
  provisioner.provisioner.packing_list:
    content: "{{ export | provisioner.provisioner.netbox_packing_list(rack='r01', pool='gpu') }}"
"""

RETURN = r"""
objects:
  description: What was looked at, each object with what was done to it.
  returned: success
  type: list
  elements: dict
  contains:
    action:
      description: create, update, unchanged or delete.
      type: str
    kind:
      description: Kind of the object.
      type: str
    name:
      description: Its name.
      type: str
    reason:
      description: Why, where that is not obvious.
      type: str
    changes:
      description: Fields that changed, each with before and after; values of Secrets are never told.
      type: list
      elements: dict
notes:
  description: What a person should see, such as a NodePool that does not exist yet.
  returned: always
  type: list
  elements: str
mistakes:
  description: All that is wrong, each with origin, observed, expected and remedy. Nothing was written then.
  returned: when something is wrong
  type: list
  elements: dict
remedy:
  description: What to do about a failure.
  returned: failure
  type: str
"""

import json
from pathlib import Path
from typing import Any

from ansible_collections.provisioner.provisioner.plugins.module_utils import registering
from ansible_collections.provisioner.provisioner.plugins.module_utils.provisioner_module import (
    failures,
    find_object,
    make_module,
    open_cluster,
    spec_of,
)


def read(params: dict[str, Any]) -> Any:
    """The list that the task names. Raises: BadPackingList with all mistakes; Refused for what cannot be read."""
    from provisioner.api.machinery.errors import Refused
    from provisioner.inventory.lists.headers import field_of, known_headers
    from provisioner.inventory.lists.packing_list import read_packing_list

    columns = {}
    for field, header in params["columns"].items():
        meant = field_of(str(field))
        if meant is None:
            raise Refused(f"columns has {field}, expected one of the fields", hint=f"use one of\n{known_headers()}")
        columns[meant] = str(header)
    if params["content"] is not None:
        return read_packing_list(json.dumps(params["content"]).encode(), "content.json")
    try:
        data = Path(params["src"]).read_bytes()
    except OSError as error:
        raise Refused(f"packing list {params['src']} cannot be read: {error.strerror}", hint="correct src") from error
    return read_packing_list(
        data,
        params["src"],
        rack=params["rack"],
        pool=params["pool"],
        take_passwords=params["bmc_passwords"],
        columns=columns,
    )


def with_rack(cluster: Any, wanted: Any, params: dict[str, Any]) -> Any:
    """The list, with the Rack of `rack` and `subnets` before its servers. Raises: Refused without a rack."""
    from dataclasses import replace

    from provisioner.api import Rack
    from provisioner.api.machinery.errors import Refused
    from provisioner.inventory.lists.entries import ListEntry, Origin

    if not params["subnets"]:
        return wanted
    if not params["rack"]:
        raise Refused("subnets were given without rack, expected both", hint="name the rack that they belong to")
    before = find_object(cluster, Rack, params["rack"])
    given = {"spec": {"subnets": [spec_of(subnet) for subnet in params["subnets"]]}}
    spec = registering.overlay(registering.fields_that_are_ours(before) if before else {}, given)["spec"]
    rack = ListEntry(kind="Rack", name=params["rack"], spec=spec, origin=Origin("subnets"))
    return replace(wanted, entries=(rack, *wanted.entries))


def with_credentials(wanted: Any, given: dict[str, Any]) -> Any:
    """The list, with the BMCs' passwords. Raises: Refused for a server that is not in it, or has no BMC."""
    from dataclasses import replace

    from provisioner.api.machinery.errors import Refused
    from provisioner.api.machinery.values import Secret
    from provisioner.inventory.lists.entries import BmcCredentials

    entries = {entry.name: entry for entry in wanted.entries if entry.kind == "Server"}
    for name, both in given.items():
        complete = isinstance(both, dict) and both.get("username") and both.get("password")
        if name not in entries or not entries[name].spec.get("bmc") or not complete:
            raise Refused(
                f"bmc_credentials of {name}: expected username and password of a server of the list that has a BMC",
                hint="correct the name, add its BMC's address to the list, or take the entry out",
            )
        credentials = BmcCredentials(str(both["username"]), Secret(str(both["password"])))
        entries[name] = replace(entries[name], credentials=credentials)
    return replace(wanted, entries=tuple(entries.get(e.name, e) if e.kind == "Server" else e for e in wanted.entries))


def main() -> None:
    module = make_module(DOCUMENTATION, mutually_exclusive=[("src", "content")], required_one_of=[("src", "content")])
    with failures(module):
        from provisioner.inventory.lists.entries import BadPackingList

        cluster = open_cluster(module)
        try:
            wanted = with_credentials(read(module.params), module.params["bmc_credentials"])
        except BadPackingList as bad:
            module.fail_json(**registering.mistaken(bad))
        wanted = with_rack(cluster, wanted, module.params)
        module.exit_json(**registering.register(module, cluster, wanted, module.params["acceptance"]))


if __name__ == "__main__":
    main()
