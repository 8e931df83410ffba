"""Reading a packing list: YAML or CSV, told apart by its name, else by its content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

from provisioner.api.machinery.documents import MOST_BYTES, Unreadable, within
from provisioner.inventory.lists.csv_list import decode_text, read_csv
from provisioner.inventory.lists.entries import BadPackingList, Mistake, Origin, PackingList
from provisioner.inventory.lists.yaml_list import read_yaml

_NO_TEXT: Final = {
    b"PK\x03\x04": "an Excel workbook or another archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook of before 2007",
    b"%PDF": "a PDF",
    b"\x1f\x8b": "a compressed file",
}


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
    try:
        within(data)
    except Unreadable as error:
        mistake = Mistake(Origin(file), Exception.__str__(error), f"at most {MOST_BYTES:,} bytes", "split it")
        raise BadPackingList((mistake,)) from error
    found = next((what for magic, what in _NO_TEXT.items() if data.startswith(magic)), None)
    if found is not None:
        wanted = "YAML, or CSV (comma, semicolon, tab or |)"
        remedy = "in the spreadsheet: Save as, CSV UTF-8 or Unicode text"
        raise BadPackingList((Mistake(Origin(file), found, wanted, remedy),))
    text = decode_text(data)
    if _is_yaml(file, text):
        packing_list, mistakes = read_yaml(text, file)
    else:
        packing_list, mistakes = read_csv(
            text, file, rack=rack, pool=pool, take_passwords=take_passwords, columns=columns
        )
    if mistakes:
        raise BadPackingList(mistakes, packing_list.notes)
    return packing_list


def _is_yaml(file: str, text: str) -> bool:
    suffix = PurePath(file).suffix.lower()
    if suffix in (".yaml", ".yml", ".json"):
        return True
    if suffix in (".csv", ".tsv", ".txt"):
        return False
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return first.startswith(("---", "{", "apiVersion:", "kind:", "rack:", "servers:", "defaults:"))
