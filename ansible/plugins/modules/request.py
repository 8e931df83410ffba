#!/usr/bin/python
"""A request: something is asked for that disturbs servers, as `kubectl provision` asks for it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: request
short_description: Ask for a drain, a reboot, a reimage or a power cycle of servers
version_added: 0.2.0
description:
  - Files a request by the rules of C(kubectl provision), in the name of the kubeconfig's user. It goes into the
    Maintenance of the server that can still take it, else into a new one; the provisioner carries it out, once no job
    is disturbed, unless O(policy) says otherwise.
  - What was asked for before in the same words, and has not ended, is not asked for again.
  - With O(key), a request is made once, also when it is done already and the play is run again. Without it, an action
    that is done is asked for anew, but for V(Reimage) to an O(image) that a server runs already.
author: The authors of provisioner
extends_documentation_fragment:
  - provisioner.provisioner.cluster
attributes:
  check_mode:
    description: The API server says whether it would take each request, and writes nothing.
    support: full
  diff_mode:
    description: The request before and after.
    support: full
options:
  servers:
    description:
      - Names of the servers.
    type: list
    elements: str
    default: []
  selector:
    description:
      - Servers whose Nodes have these labels, as kubectl selects.
    type: str
  pool:
    description:
      - Servers of that NodePool.
    type: str
  state:
    description:
      - V(present) asks; V(absent) withdraws what this user has asked for of these servers.
    type: str
    choices: [present, absent]
    default: present
  action:
    description:
      - V(Drain) takes a server out of use until the request is withdrawn. V(Reboot) and V(PowerCycle) boot it anew.
        V(Reimage) does so, too, and counts as done only on the image that is meant.
      - Required with O(state=present).
    type: str
    choices: [Drain, Reboot, Reimage, PowerCycle]
  policy:
    description:
      - V(WhenIdle) interrupts no job. V(Deadline) lets jobs run until O(deadline). V(Now) ends them at once; who may
        ask for that is said by RBAC.
    type: str
    choices: [WhenIdle, Deadline, Now]
    default: WhenIdle
  deadline:
    description:
      - With O(policy=Deadline). A span such as 2h or 1d, or RFC 3339. A span counts from when it was first asked.
    type: str
  image:
    description:
      - Image to boot once; the one that is assigned to the server if absent.
    type: str
  reason:
    description:
      - Why, in words. It is kept on record.
    type: str
  key:
    description:
      - Names the request among all of this user's, such as a change ticket. It is written behind the reason. As long
        as the server's Maintenances are on record (the last ten, and those of two weeks), a request with a key that is
        under way or was carried out is not made again; one that failed or was cancelled is.
    type: str
  wait:
    description:
      - Whether to wait until all is done. The task fails if a request fails or is cancelled, and says why.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds to wait; 0 waits without end. The request stands when they are over.
    type: int
    default: 7200
"""

EXAMPLES = r"""
- name: Boot two servers anew, as their jobs end
  provisioner.provisioner.request:
    servers: [r01-u01, r01-u02]
    action: Reboot
    reason: new firmware of the NIC
    key: CHG-4711
    wait: true

- name: Take a rack out of use by tomorrow
  provisioner.provisioner.request:
    selector: provisioner.dev/rack=r01
    action: Drain
    policy: Deadline
    deadline: 1d
    reason: work on the power supply

- name: Let it work again
  provisioner.provisioner.request:
    selector: provisioner.dev/rack=r01
    state: absent
"""

RETURN = r"""
requests:
  description: What is asked for now, or was withdrawn; one for each server.
  returned: success
  type: list
  elements: dict
  contains:
    server:
      description: The server.
      type: str
    maintenance:
      description: Name of the Maintenance that holds the request.
      type: str
    requestor:
      description: Name of the entry in it.
      type: str
    state:
      description: filed, unchanged, done (by its key or its image) or withdrawn.
      type: str
    outcome:
      description: With wait, how it ended (Completed, Drained, Failed, Cancelled or TimedOut).
      type: str
    message:
      description: Why, in words.
      type: str
remedy:
  description: What to do about a failure.
  returned: failure
  type: str
"""

import re
from datetime import UTC, datetime
from typing import Any

from ansible_collections.provisioner.provisioner.plugins.module_utils import asking
from ansible_collections.provisioner.provisioner.plugins.module_utils.provisioner_module import (
    failures,
    make_module,
    open_cluster,
    wait_seconds,
)

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,62}")


def ask_of(params: dict[str, Any], now: datetime) -> Any:
    """What the task asks for. Raises: Refused, BadInput."""
    from provisioner.api.machinery.errors import Refused
    from provisioner.cli.kubectl.asking import MAX_MESSAGE, RequestOptions
    from provisioner.cli.kubectl.moments import read_deadline

    key, deadline = params["key"], params["deadline"]
    if key is not None and not _KEY.fullmatch(key):
        raise Refused(f"key is {key!r}, expected letters, digits and ._:/-, at most 63", hint="write it so")
    if (deadline is not None) != (params["policy"] == "Deadline"):
        raise Refused(
            f"policy is {params['policy']} and deadline {deadline!r}, expected a deadline with policy Deadline alone",
            hint="give both, or neither",
        )
    message = asking.with_key(params["reason"], key)
    if message is not None and len(message) > MAX_MESSAGE:
        raise Refused(f"reason has {len(message)} characters", hint=f"use at most {MAX_MESSAGE}")
    return RequestOptions(
        action=params["action"],
        policy=params["policy"],
        deadline=read_deadline(deadline, now) if deadline is not None else None,
        image=params["image"],
        message=message,
    )


def main() -> None:
    module = make_module(
        DOCUMENTATION,
        mutually_exclusive=[("servers", "selector", "pool")],
        required_if=[("state", "present", ["action"])],
    )
    params, now = module.params, datetime.now(UTC)
    if not (params["servers"] or params["selector"] or params["pool"]):
        # A list that is empty, as a play may well compute it, asks for nothing of anybody.
        module.exit_json(changed=False, requests=[])
    with failures(module):
        from provisioner.cli.kubectl.targets import TargetSelection, find_targets

        cluster = open_cluster(module)
        wish = TargetSelection(names=tuple(params["servers"]), selector=params["selector"], pool=params["pool"])
        asks = params["state"] == "present"
        targets = find_targets(cluster, wish, for_requests=asks, boots=asks and params["action"] != "Drain")
        if not asks:
            module.exit_json(**asking.withdraw_all(cluster, targets, check_mode=module.check_mode))
        answers = asking.file_all(
            cluster, ask_of(params, now), targets, now, key=params["key"], check_mode=module.check_mode
        )
        result = asking.told(answers)
        if params["wait"] and not module.check_mode:
            result |= asking.wait_for_all(cluster, answers, wait_seconds(module))
            if "msg" in result:
                module.fail_json(**result)
        module.exit_json(**result)


if __name__ == "__main__":
    main()
