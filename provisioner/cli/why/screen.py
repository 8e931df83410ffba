"""`why`: one screen of text about one server. Pure: the same objects give the same words.

r01-u07 waits for jobs to end, then boots into Image gpu-node-2

why         alice asked for Reimage when idle, 2 h 5 min ago (user-alice): "driver 590"
waits for   Pod ml/train-0: is a job, since 12 min
next        …
"""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.cli.kubectl.printing import screen
from provisioner.cli.why.headline import headline
from provisioner.cli.why.identity import identity
from provisioner.cli.why.maintenance import attempts, next_step, reasons, record, waiting_behind, waits_for
from provisioner.cli.why.remedies import remedies
from provisioner.cli.why.rollout import rollout_notes
from provisioner.cli.why.server import boot, checks, events, faults, last_maintenance, node_notes, pending_requests
from provisioner.cli.why.subject import ServerSubject


def render_why(subject: ServerSubject) -> str:
    """The screen; ends with a newline."""
    return screen(f"{subject.server.name} {headline(subject)}", sections(subject))


def sections(subject: ServerSubject) -> tuple[tuple[str, Iterable[str]], ...]:
    """All there is to say under the headline; what has no entries is not shown."""
    return (
        ("why", reasons(subject)),
        ("asked", pending_requests(subject)),
        ("waits for", waits_for(subject)),
        ("rollout", rollout_notes(subject)),
        ("next", next_step(subject)),
        ("you can", remedies(subject)),
        ("attempts", attempts(subject)),
        ("record UTC", record(subject)),
        ("behind it", waiting_behind(subject)),
        ("faults", faults(subject)),
        ("node", node_notes(subject)),
        ("boot", boot(subject)),
        ("identity", identity(subject)),
        ("checks", checks(subject)),
        ("last time", last_maintenance(subject)),
        ("events UTC", events(subject)),
    )
