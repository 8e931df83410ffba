"""A fake of mstprivhost and mstconfig, and of the card that they speak to.

It is no mstflint: it prints in the form that MFT's documentation and Mellanox/mstflint show (mstprivhost.py,
printConfOut; mlxcfg_ui.cpp, printConfHeader and printSingleParam), keeps what it is told as the card's next boot, and
breaks on command. What real firmware does beyond that, its timing, its rules between settings and its mistakes, is not
played.

As a program (`fake_mst_tools.py TOOL FOLDER ARGUMENTS…`) it is the tool; imported, it makes the card.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

SWITCHES: Final = {
    "disable_rshim": "HOST_DISABLE_RSHIM",
    "disable_tracer": "HOST_DISABLE_TRACER_OWNER",
    "disable_port_owner": "HOST_DISABLE_PORT_OWNER",
    "disable_counter_rd": "HOST_DISABLE_PORT_COUNTER",
}
WORDS: Final[dict[str, list[str]]] = {
    "HOST_PRIV_LEVEL": ["PRIVILEGED", "LIMITED"],
    "DELAY_HOST_OS_INIT": ["DEVICE_DEFAULT", "ENABLE", "DISABLE", "ENABLE_USER"],
    "INTERNAL_CPU_OFFLOAD_ENGINE": ["ENABLED", "DISABLED"],
    "SRIOV_EN": ["False", "True"],
    "NUM_OF_VFS": [],
    **{name: ["False", "True"] for name in SWITCHES.values()},
}
DEVICE: Final = "0000:03:00.0"


class FakeCard:
    """A BlueField-3 at `DEVICE`, with its tools in `path` and its PCI bus in `bus`."""

    def __init__(self, folder: Path, *, device_id: str = "0xa2dc") -> None:
        self._folder = folder / "card"
        self.bin, self.bus = folder / "bin", folder / "bus"
        for each in (self._folder, self.bin, self.bus):
            each.mkdir()
        self._write({name: [0, 0, 0] for name in WORDS})
        for tool in ("mstprivhost", "mstconfig"):
            script = self.bin / tool
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{__file__}" {tool} "{self._folder}" "$@"\n')
            script.chmod(0o755)
        for function in (0, 1):
            self.plug(f"{DEVICE[:-1]}{function}", "0x15b3", device_id)

    @property
    def path(self) -> str:
        """For `Tools`: the fake tools, and nothing else but what they need themselves."""
        return f"{self.bin}:/usr/bin:/bin"

    def plug(self, address: str, vendor: str, device: str) -> None:
        """A PCI device, as sysfs shows it."""
        (self.bus / address).mkdir()
        (self.bus / address / "vendor").write_text(f"{vendor}\n")
        (self.bus / address / "device").write_text(f"{device}\n")

    def stored(self, name: str) -> int:
        return int(self._read()[name][2])

    def change(self, name: str, value: int) -> None:
        """By somebody else: stored, and in force at the next power cycle."""
        values = self._read()
        values[name][2] = value
        self._write(values)

    def power_cycle(self) -> None:
        self._write({name: [default, next_, next_] for name, (default, _, next_) in self._read().items()})

    def lose(self, name: str) -> None:
        """A firmware that does not know a setting."""
        self._write({each: values for each, values in self._read().items() if each != name})

    def breaks(self, tool: str, verb: str, how: str) -> None:
        """how: hangs, hangs halfway (once it has opened a restricted card in order to restrict it anew, as mstprivhost
        does), fails, prints nonsense, floods, forgets (says that it is done, and does nothing), keeps secret (what is
        in force), or works."""
        (self._folder / f"{tool}-{verb}").write_text(how)

    def commands(self) -> list[str]:
        """What the tools were asked, in order."""
        asked = self._folder / "asked"
        return asked.read_text().splitlines() if asked.exists() else []

    def told(self) -> list[str]:
        """Those of the commands that change the card."""
        return [each for each in self.commands() if " q" not in each]

    def _read(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = json.loads((self._folder / "settings").read_text())
        return found

    def _write(self, values: dict[str, Any]) -> None:
        (self._folder / "settings").write_text(json.dumps(values))


def _cell(name: str, value: int) -> str:
    words = WORDS[name]
    return f"{words[value]}({value})" if words else str(value)


def _print_settings(names: list[str], values: dict[str, list[int]], *, secret: bool) -> None:
    columns = ["Default", "Next Boot"] if secret else ["Default", "Current", "Next Boot"]
    print("\nDevice #1:\n----------\n")
    print(f"{'Device type:':20}{'BlueField3':20}\n{'Name:':20}{'900-9D3B6-00CV-A_Ax':20}")
    print(f"{'Description:':20}NVIDIA BlueField-3 B3220 P-Series FHHL DPU; 200GbE (default mode)")
    print(f"{'Device:':20}{DEVICE}\n")
    print(f"{'Configurations:':56}" + "".join(f"{each:20}" for each in columns))
    for name in names:
        default, current, stored = values[name]
        mark = "*" if stored not in (default, default if secret else current) else " "
        shown = [default, stored] if secret else [default, current, stored]
        print(f"{mark}       {name:48}" + "".join(f"{_cell(name, each):20}" for each in shown))
    print("The '*' shows parameters with next value different from default/current value.")


def _print_privileges(values: dict[str, list[int]]) -> None:
    level = "RESTRICTED" if values["HOST_PRIV_LEVEL"][2] else "PRIVILEGED"
    print(f"Host configurations\n-------------------\n{'level':30}: {level}")
    print("\nPort functions status:\n-----------------------")
    for switch, name in SWITCHES.items():
        print(f"{switch:30}: {'TRUE' if values[name][2] else 'FALSE'}")


def _number(name: str, text: str) -> int:
    words = [each.casefold() for each in WORDS[name]]
    return words.index(text.casefold()) if text.casefold() in words else int(text)


def main(tool: str, folder: Path, arguments: list[str]) -> int:
    with (folder / "asked").open("a") as asked:
        asked.write(" ".join([tool, *arguments]) + "\n")
    verb = next(each for each in arguments[2:] if not each.startswith("-"))
    trouble = folder / f"{tool}-{verb}"
    how = trouble.read_text() if trouble.exists() else "works"
    if how == "hangs":
        time.sleep(600)
    if how == "fails":
        print("-E- Failed to open device: 0000:03:00.0. Cannot allocate memory")
        return 1
    if how == "floods":
        for _ in range(100_000):
            print("-W- the card says the same again and again")
        return 0
    if how == "prints nonsense":
        print("level : SOMETHING ELSE\nConfigurations: Next Boot\n        DELAY_HOST_OS_INIT   1 2 3 4 5")
        return 0
    path = folder / "settings"
    values: dict[str, list[int]] = json.loads(path.read_text())
    if verb == "q" and tool == "mstprivhost":
        _print_privileges(values)
        return 0
    named = [each.partition("=") for each in arguments[arguments.index(verb) + 1 :]]
    unknown = [name for name, _, _ in named if name not in values and not name.startswith("-")]
    if unknown:
        print(f"-E- Unknown Parameter: {unknown[0]}")
        return 3
    if verb == "q":
        _print_settings([name for name, _, _ in named], values, secret=how == "keeps secret")
        return 0
    if how != "forgets":
        if tool == "mstconfig":
            for name, _, text in named:
                values[name][2] = _number(name, text)
        else:
            if verb == "r" and values["HOST_PRIV_LEVEL"][2]:
                for name in ("HOST_PRIV_LEVEL", *SWITCHES.values()):
                    values[name][2] = 0
                path.write_text(json.dumps(values))
            if how == "hangs halfway":
                time.sleep(600)
            values["HOST_PRIV_LEVEL"][2] = int(verb == "r")
            for switch, name in SWITCHES.items():
                values[name][2] = int(f"--{switch}" in arguments)
        path.write_text(json.dumps(values))
    print("Applying... Done!\n-I- Please power cycle machine to load new configurations.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
