"""Values of packing lists, in CSV and YAML alike: what people, vendors and spreadsheets make of them. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import MacAddress, parse_mac
from provisioner.api.machinery.wording import clip

AS_WRITTEN: Final = "the value as it was written"
"""What is expected in place of what a spreadsheet made."""
_SHOWN: Final = 80
_ERROR: Final = re.compile(
    r"#(N/A|REF!|VALUE!|NAME\?|DIV/0!|NUM!|NULL!|SPILL!|CALC!|FIELD!|NV|BEZUG!|WERT!|ZAHL!)", re.IGNORECASE
)
"""Of spreadsheets in English and German."""
_AS_TEXT: Final = "format the column as text, and fill it in again"
_SPREADSHEET_NUMBER: Final = re.compile(r"\d([.,]\d+)?[eE]\+?\d{1,3}")
_ROUNDED: Final = re.compile(r"\d([.,]\d+)?[eE]\+\d{1,3}|\d[.,]\d+[eE]-?\d{1,3}")
"""As above, of what may be no MAC address: a serial number such as 1E5 is none that was rounded."""
_WITH_DECIMALS: Final = re.compile(r"\d+[.,]0+")
_MONTH: Final = "(jan|feb|m[aä]r|mrz|apr|ma[iy]|jun|jul|aug|sept?|o[ck]t|nov|de[cz])"
"""A spreadsheet shortens them: `main-01` and `march-1` are names."""
_DATE: Final = re.compile(
    rf"\d{{1,4}}[-. /]{{1,2}}{_MONTH}\.?([-. /]\d{{2,4}})?|{_MONTH}[-. /]\d{{1,4}}|"
    r"\d{1,2}(?P<mark>[./-])\d{1,2}(?P=mark)\d{4}|(\d{4}-\d{2}-\d{2}|(19|20)\d{2}/\d{1,2}/\d{1,2})( 0?0:00(:00)?)?",
    re.IGNORECASE,
)
_SHORT_DATE: Final = re.compile(r"\d{1,2}(?P<mark>[./])\d{1,2}(?P=mark)\d{2}")
"""Of positions alone: a rack may be called 1.2.10."""
_TIME: Final = re.compile(r"([01]?\d|2[0-3]):[0-5]\d:[0-5]\d( [ap]m)?", re.IGNORECASE)
_MANGLED: Final = frozenset(
    {"name", "rackRef", "position", "serialNumber", "chassisSerialNumber", "systemUUID", "bmc.systemID"}
)
"""Fields of what a spreadsheet may have taken for a number or a date."""
_SERIALS: Final = frozenset({"serialNumber", "chassisSerialNumber"})
_CUT: Final = re.compile(r"[0-9]{1,11}")
_UUID: Final = re.compile(
    r"(?P<brace>\{)?([0-9a-f]{8})(?P<dash>-?)([0-9a-f]{4})(?P=dash)([0-9a-f]{4})(?P=dash)([0-9a-f]{4})(?P=dash)"
    r"([0-9a-f]{12})(?(brace)\})"
)


def clean(cell: str) -> str:
    """What a cell shows in a spreadsheet: without invisible characters, and without the marks that make it a text."""
    if not cell.isascii():
        cell = "".join(char for char in cell if unicodedata.category(char) != "Cf")
    cell = cell.strip()
    if cell.startswith('="') and cell.endswith('"'):
        cell = cell[2:-1].strip()
    return cell.removeprefix("'")


def is_spreadsheet_error(cell: str) -> bool:
    """Whether a cell is what a spreadsheet shows in place of a value that it could not compute, such as #N/A."""
    return _ERROR.fullmatch(cell) is not None


def refuse_spreadsheets(field: str, cell: str) -> None:
    """`field`: in the API's spelling, or `password`, which may begin with any character.

    Raises: Refused for an error of a spreadsheet, a formula, and what a spreadsheet made of a value that is no number
    and no date. A formula with an @ is not shown: it may hold a password.
    """
    if is_spreadsheet_error(cell):
        raise Refused(f"{cell!r}, an error of a spreadsheet", hint="correct the formula, or fill in the value itself")
    if cell.startswith("=") and field != "password":
        shown = "" if "@" in cell else f"{clip(cell, _SHOWN)!r}, "
        raise Refused(f"{shown}a formula of a spreadsheet", hint="fill in the value that it shows")
    what = _made_of(field, cell) if field in _MANGLED else None
    if what is not None:
        raise Refused(f"{cell!r}, {what} that a spreadsheet made of it", hint=_AS_TEXT)


def _made_of(field: str, cell: str) -> str | None:
    if _ROUNDED.fullmatch(cell) or (field in _SERIALS and _WITH_DECIMALS.fullmatch(cell)):
        return "a number"
    if _DATE.fullmatch(cell) or (field == "position" and _SHORT_DATE.fullmatch(cell)):
        return "a date"
    return "a time" if _TIME.fullmatch(cell) else None


def read_mac(text: str) -> MacAddress:
    """As `parse_mac`. Raises: Refused, also for what a spreadsheet made of it; a text with an @ is not shown, as the
    address of a BMC in the wrong column may hold a password."""
    if "@" in text:
        raise Refused("***@… is no MAC address", hint="write it as 52:54:00:12:34:56")
    if _SPREADSHEET_NUMBER.fullmatch(text):
        raise Refused(f"{text!r}, a number that a spreadsheet rounded", hint="format the column as text")
    if _CUT.fullmatch(text):
        raise Refused(
            f"MAC address {text!r} is not six bytes; a spreadsheet may have cut zeros at its front", hint=_AS_TEXT
        )
    return parse_mac(text)


def read_position(text: str) -> str:
    """`7`, `U7`, `u 07`, `RU7`, `7.0` → `u07`; anything else as it is."""
    match = re.fullmatch(r"(?:r?u)?\s*0*(\d{1,2})(?:[.,]0)?", text.strip().lower())
    return f"u{int(match.group(1)):02d}" if match else text


def read_uuid(text: str) -> str:
    """In lower case with dashes, also of one in braces or without dashes; anything else in lower case."""
    match = _UUID.fullmatch(text.lower())
    return "-".join(match.group(2, 4, 5, 6, 7)) if match else text.lower()


def placeholder_note(place: str, value: str) -> str:
    """What is said of a value that is left out."""
    return f"{place}: {value!r} is a vendor's placeholder, which many machines have; it is left out"
