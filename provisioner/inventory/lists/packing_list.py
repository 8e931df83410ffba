"""Reading a packing list: YAML or CSV, told apart by its name, else by its content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

from provisioner.inventory.lists.csv_list import decode_text, read_csv
from provisioner.inventory.lists.entries import BadPackingList, Mistake, Origin, PackingList
from provisioner.inventory.lists.yaml_list import read_yaml

_ZIP: Final = b"PK\x03\x04"


def read_packing_list(
    data: bytes,
    file: str,
    *,
    rack: str | None = None,
    pool: str | None = None,
    take_passwords: bool = False,
    columns: Mapping[str, str] | None = None,
) -> PackingList:
    """Everything that the file registers. `rack`, `pool`, `take_passwords`, `columns` are for CSV; see `read_csv`.

    Raises: BadPackingList with all mistakes at once.
    """
    if data.startswith(_ZIP):
        wanted = "YAML, or CSV (comma, semicolon or tab)"
        remedy = "in the spreadsheet: Save as, CSV UTF-8 or Unicode text"
        raise BadPackingList((Mistake(Origin(file), "an Excel workbook or another archive", wanted, remedy),))
    text = decode_text(data)
    if _is_yaml(file, text):
        packing_list, mistakes = read_yaml(text, file)
    else:
        packing_list, mistakes = read_csv(
            text, file, rack=rack, pool=pool, take_passwords=take_passwords, columns=columns
        )
    if mistakes:
        raise BadPackingList(mistakes)
    return packing_list


def _is_yaml(file: str, text: str) -> bool:
    suffix = PurePath(file).suffix.lower()
    if suffix in (".yaml", ".yml", ".json"):
        return True
    if suffix in (".csv", ".tsv", ".txt"):
        return False
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return first.startswith(("---", "{", "apiVersion:", "kind:", "rack:", "servers:", "defaults:"))
