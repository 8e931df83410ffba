"""One target under atheris, in a process of its own: `python -m tests.fuzz.by_atheris TARGET CORPUS` and libFuzzer's
flags."""

from __future__ import annotations

import sys
from typing import Any


def main() -> None:
    import atheris  # type: ignore[import-not-found,unused-ignore]  # `make fuzz FUZZ=atheris` installs it; no test needs it

    fuzzer: Any = atheris
    with fuzzer.instrument_imports(include=["provisioner"]):
        from tests.fuzz.targets import TARGETS
    target = next(each for each in TARGETS if each.name == sys.argv[1])
    fuzzer.Setup([sys.argv[0], *sys.argv[2:]], lambda data: target.attempt(data) and None)
    fuzzer.Fuzz()


if __name__ == "__main__":
    main()
