"""What a release's agent does to join, for many machines: started with that release's code on its path.

A line of JSON a join comes in, {"id", "facts", "key", "ca"}; a line goes out once the join configuration is there.
"""

import json
import random
import sys
import threading
import time

from provisioner.node.http.post import pinned_context
from provisioner.node.join import NoProver, fetch_configuration, report_progress
from provisioner.node.machine.boot_facts import BootFacts

_answers = threading.Lock()


def join(told: dict) -> None:  # type: ignore[type-arg]
    facts = BootFacts(**told["facts"])
    report_progress(facts, "AgentStarted")
    words: list[str] = []
    configuration = fetch_configuration(
        facts,
        told["key"],
        pinned_context(told["ca"]),
        say=words.append,
        tell=words.append,
        # The agent's own waits, but none longer than a test likes.
        sleep=lambda seconds: time.sleep(min(seconds, 2.0)),
        chance=random.random,
        prover=NoProver(),
    )
    with _answers:
        print(json.dumps({"id": told["id"], "has": sorted(configuration), "said": words}), flush=True)


for line in sys.stdin:
    threading.Thread(target=join, args=(json.loads(line),), daemon=True).start()
