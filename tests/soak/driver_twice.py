"""The real driver built twice from nothing, elsewhere and later: every byte of the layer must be the same.

    python -m tests.soak.driver_twice

Each build downloads 200 MB and compiles for 2 to 8 minutes; `make soak` does it.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
import time
from pathlib import Path

from provisioner.image.module_signing import generate_module_key
from tests.image.driver.real import build_real, digests
from tests.tools import CACHE


def main() -> int:
    """0 if the two are one."""
    key = generate_module_key(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    found = []
    CACHE.mkdir(parents=True, exist_ok=True)
    for build in ("first", "second"):
        with tempfile.TemporaryDirectory(prefix=f"driver-{build}-", dir=CACHE) as name:
            started = time.monotonic()
            tree = build_real(key, Path(name), build).tree
            found.append(digests(tree.root))
            print(f"{build} build: {time.monotonic() - started:.0f} s, {len(found[-1])} paths", flush=True)
    differ = sorted(path for path in {*found[0], *found[1]} if found[0].get(path) != found[1].get(path))
    print(f"differ: {', '.join(differ)}" if differ else "the two are the same, byte for byte")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
