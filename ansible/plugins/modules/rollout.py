#!/usr/bin/python
"""A rollout: a pool's servers move to another image, as their jobs end."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout
short_description: Move a NodePool to another image
version_added: 0.2.0
description:
  - Sets the image of a NodePool, by the rules of C(kubectl provision rollout start). The servers follow as their jobs
    end, with the canary, waves, caps and windows of the pool.
  - A pool that wants the image already is left as it is. One whose rollouts are paused goes on.
  - A rollout that stopped itself waits for a person, who resumes it or goes back with C(kubectl provision rollout).
author: The authors of provisioner
extends_documentation_fragment:
  - provisioner.provisioner.cluster
attributes:
  check_mode:
    description: Tells how many servers would go there and which are first.
    support: full
  diff_mode:
    description: Fields of the NodePool that change.
    support: full
options:
  pool:
    description:
      - Name of the NodePool.
    type: str
    required: true
  image:
    description:
      - Name of the Image that its servers shall run.
    type: str
    required: true
  wait:
    description:
      - Whether to wait until the rollout is complete. The task fails if it stops itself, and says why.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds to wait; 0 waits without end. The rollout goes on when they are over.
    type: int
    default: 86400
"""

EXAMPLES = r"""
- name: Move the pool, and wait until all have it
  provisioner.provisioner.rollout:
    pool: gpu
    image: gpu-node-89c012345678
    wait: true
    wait_timeout: 172800
"""

RETURN = r"""
messages:
  description: What was decided, in words, such as how many servers go and who is first.
  returned: success
  type: list
  elements: str
outcome:
  description: Completed, Stopped or TimedOut.
  returned: with wait, not in check mode
  type: str
servers:
  description: How many servers are in which state.
  returned: with wait, not in check mode
  type: dict
  sample: {Updated: 40}
failed:
  description: Servers that did not get through it, each with what is known.
  returned: with wait, not in check mode
  type: list
  elements: dict
remedy:
  description: What to do about a failure.
  returned: failure
  type: str
"""

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ansible_collections.provisioner.provisioner.plugins.module_utils.provisioner_module import (
    failures,
    make_module,
    open_cluster,
    wait_seconds,
)

LOOK_SECONDS = 5.0


def start(module: Any, cluster: Any) -> dict[str, Any]:
    """Decide, and write what changes. Raises: BadInput for an Image that nobody could boot; Refused."""
    from provisioner.cli.rollout import changes
    from provisioner.cli.rollout.change_commands import write_change
    from provisioner.cli.rollout.pool_view import find_image, read_pool, read_view

    pool, image = module.params["pool"], module.params["image"]
    before = read_pool(cluster, pool)

    def decide(cluster: Any, view: Any) -> Any:
        return changes.begin(view, image, find_image(cluster, image))

    if module.check_mode:
        change = decide(cluster, read_view(cluster, before, datetime.now(UTC)))
    else:
        change = write_change(cluster, pool, decide, yes=True)[1]
    now = {changes.IMAGE_REF: before.spec.image_ref, changes.PAUSED: before.spec.upgrade_strategy.paused}
    header = f"NodePool {pool}"
    return {
        "changed": bool(change.fields),
        "messages": list(change.words),
        "diff": {
            "before_header": header,
            "after_header": header,
            "before": "".join(f"{field}: {now.get(field)}\n" for field in change.fields),
            "after": "".join(f"{field}: {value}\n" for field, value in change.fields.items()),
        },
    }


def outcome(pool: Any) -> str | None:
    """Completed or Stopped; None while it goes on, or its controller has not seen the pool as it is now. Pure."""
    from provisioner.cli.rollout.pool_view import is_observed

    rollout = pool.status.rollout
    if not is_observed(pool):
        return None
    if rollout is None or rollout.image_ref != pool.spec.image_ref or rollout.completed_time is not None:
        return "Completed"
    return "Stopped" if rollout.stopped is not None else None


def wait_for(
    cluster: Any,
    name: str,
    within_seconds: float | None,
    *,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """How it ended, with `msg` and `remedy` if it is not complete. An API server that is away is waited for."""
    from provisioner.api.machinery.errors import Retryable
    from provisioner.cli.rollout.pool_view import read_pool, read_view
    from provisioner.cli.rollout.screen import headline, what_one_can_do

    until = None if within_seconds is None else monotonic() + within_seconds
    while True:
        try:
            pool = read_pool(cluster, name)
            end = outcome(pool)
        except Retryable:
            end = None
        if end is not None or (until is not None and monotonic() >= until):
            break
        sleep(LOOK_SECONDS)
    view = read_view(cluster, read_pool(cluster, name), datetime.now(UTC))
    failed = [
        {"server": standing.server.name, "message": standing.failure.message if standing.failure else ""}
        for standing in view.named("Failed")
    ]
    result: dict[str, Any] = {
        "outcome": end or "TimedOut",
        "servers": dict(Counter(standing.state for standing in view.standings.values())),
        "failed": failed,
    }
    if end == "Completed":
        return result
    stopped = view.rollout.stopped if view.rollout is not None else None
    why = f"stopped itself: {stopped.message}" if stopped else f"is not complete after {within_seconds or 0:.0f} s"
    remedy = "; ".join(what_one_can_do(view)) or f"kubectl provision rollout status {name}"
    lines = [f"rollout of NodePool {name} {why}", headline(view), *(f"{f['server']}: {f['message']}" for f in failed)]
    return result | {"msg": "\n".join([*lines, remedy]), "remedy": remedy}


def main() -> None:
    module = make_module(DOCUMENTATION)
    with failures(module):
        cluster = open_cluster(module)
        result = start(module, cluster)
        if module.params["wait"] and not module.check_mode:
            result |= wait_for(cluster, module.params["pool"], wait_seconds(module))
            if "msg" in result:
                module.fail_json(**result)
        module.exit_json(**result)


if __name__ == "__main__":
    main()
