"""The page of a made-up fleet without an API server, as a process: `python -m tests.web.serve_fake SERVERS PORT`.

Changes come as lines on standard input: `NAME LIFECYCLE`, or `* LIFECYCLE` for all servers; each is answered by a line.
"""

from __future__ import annotations

import copy
import sys
import threading
from datetime import UTC, datetime

from tests.web.conftest import served
from tests.web.made_up_fleet import make_fleet


def main(servers: int, port: int) -> None:
    site = served(make_fleet(servers, now=datetime.now(UTC)), port=port, viewers=200)
    source, stop = site.source("servers"), threading.Event()
    server = site.service.bind()
    threading.Thread(target=site.service.run, args=(server, stop), daemon=True).start()
    for line in sys.stdin:
        name, lifecycle = line.split()
        for body in source.items() if name == "*" else [site.body("servers", name)]:
            changed = copy.copy(body)
            changed["status"] = {**body["status"], "lifecycle": lifecycle}
            source.put(changed)
        print(line.strip(), flush=True)
    stop.set()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
