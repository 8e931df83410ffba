#!/usr/bin/python
"""A server: registered, changed, retired."""

from __future__ import annotations

DOCUMENTATION = r"""
module: server
short_description: Register, change and retire a server
version_added: 0.2.0
description:
  - Registers a Server by the rules of C(provisioner rack register), which are those of the Python package provisioner.
    MAC addresses, serial numbers and names that another server has are refused.
  - What a task does not name stays as it is; an empty string takes a field back. A new server is accepted, unless
    O(acceptance) says otherwise.
  - A task costs a list of all Racks and Servers; M(provisioner.provisioner.packing_list) registers a whole rack for it.
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
      - Name of the Server, which is that of its Node, too.
    type: str
    required: true
  state:
    description:
      - V(present) registers the server, or changes what the task names of it.
      - V(absent) retires it. A server in use is refused; see O(force). It is switched off by its BMC, then the
        Server, its Node and the Secret of its BMC are deleted.
    type: str
    choices: [present, absent]
    default: present
  force:
    description:
      - With O(state=absent). Deletes a server that is in use, or that nobody can switch off. Its jobs end.
    type: bool
    default: false
  wait_timeout:
    description:
      - With O(state=absent). Seconds to wait until the BMC says that the server is off; 0 waits without end.
    type: int
    default: 300
  labels:
    description:
      - Labels of the object; others that it has stay.
    type: dict
  annotations:
    description:
      - Annotations of the object; others that it has stay.
    type: dict
  rack_ref:
    description:
      - Rack in which the server stands.
    type: str
    aliases: [rack]
  position:
    description:
      - Place in the rack, such as u01.
    type: str
  serial_number:
    description:
      - Serial number from the vendor.
    type: str
  system_uuid:
    description:
      - SMBIOS system UUID, lower case.
    type: str
  architecture:
    description:
      - Processor architecture.
    type: str
    choices: [x86_64, arm64]
  boot_mac_address:
    description:
      - MAC address of the interface that boots, lower case with colons.
    type: str
    aliases: [mac]
  subnet_name:
    description:
      - Subnet of the rack in which it boots; the rack's first one if absent.
    type: str
  boot_address:
    description:
      - IPv4 address of the boot interface; allocated from the subnet (see status.address) if absent.
    type: str
  interfaces:
    description:
      - Further interfaces.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of the interface, unique in the server.
        type: str
        required: true
      mac_address:
        description:
          - MAC address, lower case with colons.
        type: str
        required: true
  infiniband_ports:
    description:
      - Ports on InfiniBand.
    type: list
    elements: dict
    suboptions:
      guid:
        description:
          - GUID of the port, such as 0x506b4b0300a1b200 (not the node's GUID). No two servers have the same.
        type: str
        required: true
      fabric_ref:
        description:
          - InfiniBandFabric that it is cabled to.
        type: str
  bmc:
    description:
      - Baseboard management controller; without one a person must press the power button.
    type: dict
    suboptions:
      address:
        description:
          - Base URL of the Redfish service, such as https://10.90.0.11; with protocol IPMI ipmi://10.90.0.11, and a
            port where it is not 623. Required of a BMC that the server does not have yet.
        type: str
      protocol:
        description:
          - Protocol spoken.
        type: str
        choices: [Redfish, IPMI]
      credentials_name:
        description:
          - Secret of namespace provisioner-bmcs with the keys username and password. Leave it out where
            O(bmc.username) and O(bmc.password) are given.
        type: str
      username:
        description:
          - User name at the BMC. Together with O(bmc.password) it is written into the Secret C(<server>-bmc) of
            namespace provisioner-bmcs, which the power controller alone reads, and nowhere else.
        type: str
      password:
        description:
          - Password at the BMC; keep it in Ansible Vault. It is never shown, in no diff either. Who may write
            that Secret but not read Secrets of the namespace is told of a change each time.
        type: str
      certificate:
        description:
          - PEM certificate that the BMC must present; the system's trust store decides if absent.
        type: str
      system_id:
        description:
          - Id of the Redfish ComputerSystem where the BMC has several; the only one if absent.
        type: str
      allow_plain_http:
        description:
          - 'Whether an address by http:// is spoken to: user name, password and sessions are readable on the way
            then.'
        type: bool
      mac_address:
        description:
          - MAC address of the BMC, for finding it; lower case with colons.
        type: str
      boot_method:
        description:
          - 'How the BMC is told to boot: Pxe, or UefiHttp with the URL set through the BMC, or Disk (left alone).'
        type: str
        choices: [Pxe, UefiHttp, Disk]
      firmware:
        description:
          - 'Firmware that protocol IPMI tells to boot: its boot flags say UEFI (also if absent) or BIOS. Redfish
            leaves that alone.'
        type: str
        choices: [UEFI, BIOS]
  node_pool_ref:
    description:
      - 'NodePool that it shall be in: whose image it boots and whose settings its Node gets. It waits without one.
        A server in use moves when its jobs have ended; see status.nodePoolRef.'
    type: str
    aliases: [pool]
  upgrades:
    description:
      - 'Follow: it moves to another image with its NodePool. Excluded: rollouts leave it alone. Follow if absent.'
    type: str
    choices: [Follow, Excluded]
  acceptance:
    description:
      - 'Whether the machine may boot: Pending machines wait at a console message until somebody accepts them.'
    type: str
    choices: [Pending, Accepted, Rejected]
  endorsement_key_sha256:
    description:
      - SHA-256 of the TPM's endorsement public key, as the subjectPublicKeyInfo of its certificate; no two Servers
        have the same. Only the machine whose TPM holds the key joins as this server then.
    type: str
  dpu:
    description:
      - 'Set of a BlueField card in another server: what enforces the networks of that server''s tenants. It boots,
        joins and is maintained as every other machine.'
    type: dict
    suboptions:
      host_ref:
        description:
          - Server in which the card sits.
        type: str
        required: true
      vtep_address:
        description:
          - 'Address of the card on the underlay, from which its tunnels leave; no two cards have the same. Without
            one the card has no DPUNetwork: nothing of its host can be attached, and the host cannot boot through
            it.'
        type: str
      functions:
        description:
          - Functions of which something else holds than of the host.
        type: list
        elements: dict
        suboptions:
          name:
            description:
              - 'Function: pf0, or pf0vf3.'
            type: str
            required: true
          tenant:
            description:
              - Namespace whose VPCs it may be attached to; the host's tenant if absent.
            type: str
          quarantined:
            description:
              - 'Whether nothing of it may pass: its tenant cannot lift it. For the whole host: its
                networkQuarantined.'
            type: bool
          mac_address:
            description:
              - MAC address that the host sees on it; if absent, the host's boot MAC address on pf0, and one made
                of the names of card and function on others.
            type: str
      host_boot:
        description:
          - 'How the host boots and joins. Direct: by its own address on the boot network. Proxied: the card answers
            its DHCP, TFTP and HTTP, fetches for it, and passes its join on; a join that comes in another way is
            refused.'
        type: str
        choices: [Direct, Proxied]
      host_access:
        description:
          - 'What root on the host may do with the card. Restricted: neither change nor flash it, nor reach its Arm
            system by rshim (mstprivhost, mlxprivhost in MFT). Privileged: all of that. If absent the card stays as
            it is.'
        type: str
        choices: [Restricted, Privileged]
      settings:
        description:
          - Settings of the card's firmware (mstconfig, mlxconfig in MFT); others stay as they are, and so does one
            that is taken out of this list.
        type: list
        elements: dict
        suboptions:
          name:
            description:
              - 'Name, as mstconfig has it: DELAY_HOST_OS_INIT.'
            type: str
            required: true
          value:
            description:
              - 'Value: a whole number, or the word that mstconfig has for it: ''1'', TRUE, ENABLED.'
            type: str
            required: true
      mode:
        description:
          - Operating mode. Cards in NIC mode have no Arm system, cannot be provisioned and are refused.
        type: str
        choices: [DPU, NIC]
  power_state:
    description:
      - Wanted power state.
    type: str
    choices: ["On", "Off"]
  tenant:
    description:
      - Namespace whose VPCs the server may be attached to; none if absent. An attachment of another namespace is
        isolated.
    type: str
  network_quarantined:
    description:
      - 'Whether nothing may pass of its attachments, Ethernet or InfiniBand, whoever''s they are: its tenants
        cannot lift it. They keep their addresses.'
    type: bool
"""

EXAMPLES = r"""
- name: Register a server
  provisioner.provisioner.server:
    name: r01-u01
    rack: r01
    position: u01
    mac: 52:54:00:80:01:01
    pool: gpu
    bmc:
      address: https://10.90.0.11
      username: provisioner
      password: "{{ vault_bmc_password }}"

- name: Leave a server out of rollouts
  provisioner.provisioner.server:
    name: r01-u01
    upgrades: Excluded

- name: Take a server out of use, as its jobs end
  provisioner.provisioner.request:
    servers: [r01-u01]
    action: Drain
    reason: it is given back
    wait: true

- name: Retire it
  provisioner.provisioner.server:
    name: r01-u01
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
  returned: success
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
    """Register it, or change it. Raises: the errors of the package."""
    from provisioner.api import Server
    from provisioner.api.machinery.errors import Refused
    from provisioner.api.machinery.values import Secret
    from provisioner.api.servers.server import ServerSpec
    from provisioner.inventory.lists.entries import BmcCredentials, ListEntry, Origin, PackingList

    params = module.params
    name = params["name"]
    options = {field.name: params.get(field.name) for field in dataclasses.fields(ServerSpec)}
    bmc = dict(options["bmc"] or {})
    username, password = bmc.pop("username", None), bmc.pop("password", None)
    if options["bmc"] is not None:
        options["bmc"] = bmc
    if (username is None) != (password is None):
        raise Refused(
            f"BMC of Server {name}: username and password were not given together, expected both or neither",
            hint="give both; the password from Ansible Vault",
        )
    before = find_object(cluster, Server, name)
    if before is None and options["boot_mac_address"] is None:
        raise Refused(
            f"there is no Server {name} yet, and no boot_mac_address was given, expected one",
            hint="give the MAC address of the interface that boots, or correct the name",
        )
    given = {"spec": spec_of(options)}
    given |= {key: params[key] for key in ("labels", "annotations") if params[key]}
    wanted = registering.overlay(registering.fields_that_are_ours(before) if before else {}, given)
    entry = ListEntry(
        kind="Server",
        name=name,
        spec=wanted["spec"],
        origin=Origin(f"task of Server {name}"),
        labels=wanted.get("labels") or {},
        annotations=wanted.get("annotations") or {},
        credentials=BmcCredentials(username, Secret(password)) if password is not None else None,
    )
    return registering.register(module, cluster, PackingList((entry,)))


def main() -> None:
    module = make_module(DOCUMENTATION)
    with failures(module):
        cluster = open_cluster(module)
        act = present if module.params["state"] == "present" else retiring.retire
        module.exit_json(**act(module, cluster))


if __name__ == "__main__":
    main()
