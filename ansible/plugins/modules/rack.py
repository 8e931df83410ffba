#!/usr/bin/python
"""A rack: where servers stand, and the subnets from which they boot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rack
short_description: Make, change and delete a rack
version_added: 0.2.0
description:
  - A Rack is a place with subnets, in which servers are registered.
  - What a task does not name stays as it is; O(subnets) are the rack's subnets as a whole.
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
  name:
    description:
      - Name of the Rack.
    type: str
    required: true
  state:
    description:
      - V(present) makes the Rack, or changes what the task names of it.
      - V(absent) deletes it. One in which servers are registered is refused.
    type: str
    choices: [present, absent]
    default: present
  labels:
    description:
      - Labels of the object; others that it has stay.
    type: dict
  annotations:
    description:
      - Annotations of the object; others that it has stay.
    type: dict
  site:
    description:
      - Site or data centre.
    type: str
  row:
    description:
      - Row in the site.
    type: str
  failure_domain:
    description:
      - Failure domain; becomes the label topology.kubernetes.io/zone of its Nodes.
    type: str
  subnets:
    description:
      - Subnets in which servers of this rack boot; the first one is used where a server names none.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of the subnet, unique in the rack.
        type: str
        required: true
      cidr:
        description:
          - The subnet, such as 10.80.0.0/24; host bits zero.
        type: str
        required: true
      gateway:
        description:
          - Router of the subnet; none for an isolated one.
        type: str
      dns_servers:
        description:
          - DNS servers that servers are told.
        type: list
        elements: str
      ntp_servers:
        description:
          - NTP servers that servers are told.
        type: list
        elements: str
      mtu:
        description:
          - MTU in bytes that servers are told.
        type: int
      relays:
        description:
          - Addresses (giaddr) of the DHCP relays that forward from this subnet; empty if a boot host is attached to
            it.
        type: list
        elements: str
      range_start:
        description:
          - First address given to servers; the subnet's first host address but the gateway's if absent.
        type: str
      range_end:
        description:
          - Last address given to servers; the last host address if absent.
        type: str
      discovery_range_start:
        description:
          - First address lent for minutes to unknown machines; without a discovery range they get none.
        type: str
      discovery_range_end:
        description:
          - Last address lent to unknown machines.
        type: str
  cache_url:
    description:
      - HTTP cache of the rack from which images are fetched first, such as http://10.80.0.5.
    type: str
  least_rate_bytes_per_second:
    description:
      - A source of images that gives a server less, over 15 s, is left for the next one; 262144 if absent. An image
        at this rate should come within the pool's stageTimeoutSeconds.root.
    type: int
"""

EXAMPLES = r"""
- name: A rack behind a relay
  provisioner.provisioner.rack:
    name: r01
    site: fra1
    row: "07"
    subnets:
      - name: boot
        cidr: 10.80.0.0/24
        gateway: 10.80.0.254
        relays: [10.80.0.254]

- name: Delete a rack whose servers are retired
  provisioner.provisioner.rack:
    name: r01
    state: absent
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

import dataclasses
from typing import Any

from ansible_collections.provisioner.provisioner.plugins.module_utils import registering, retiring
from ansible_collections.provisioner.provisioner.plugins.module_utils.provisioner_module import (
    failures,
    find_object,
    make_module,
    open_cluster,
    spec_of,
)


def present(module: Any, cluster: Any) -> dict[str, Any]:
    """Make it, or change it. Raises: the errors of the package."""
    from provisioner.api import Rack
    from provisioner.api.machinery.errors import Refused
    from provisioner.api.servers.rack import RackSpec
    from provisioner.inventory.lists.entries import ListEntry, Origin, PackingList

    params = module.params
    name = params["name"]
    before = find_object(cluster, Rack, name)
    if before is None and not params["subnets"]:
        raise Refused(
            f"there is no Rack {name} yet, and no subnets were given, expected at least one",
            hint="give the subnets from which its servers boot, or correct the name",
        )
    given = {"spec": spec_of({field.name: params.get(field.name) for field in dataclasses.fields(RackSpec)})}
    given |= {key: params[key] for key in ("labels", "annotations") if params[key]}
    wanted = registering.overlay(registering.fields_that_are_ours(before) if before else {}, given)
    entry = ListEntry(
        kind="Rack",
        name=name,
        spec=wanted["spec"],
        origin=Origin(f"task of Rack {name}"),
        labels=wanted.get("labels") or {},
        annotations=wanted.get("annotations") or {},
    )
    return registering.register(module, cluster, PackingList((entry,)))


def main() -> None:
    module = make_module(DOCUMENTATION)
    with failures(module):
        cluster = open_cluster(module)
        act = present if module.params["state"] == "present" else retiring.remove_rack
        module.exit_json(**act(module, cluster))


if __name__ == "__main__":
    main()
