"""The boot override of a Redfish system: written where the BMC takes it, and read back.

What BMCs get wrong: Supermicro falls back to Legacy where a PATCH does not name the mode, others refuse one that does;
AMI takes boot changes only at the system's settings resource (`…/SD`); many have UefiHttp without HttpBootUri, where
DHCP says the URI; some keep an override for ever that was meant for one boot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import sushy.exceptions

from provisioner.api.servers.server import BmcFirmware
from provisioner.power.bmc.power_controller import BmcRefused, OverrideTarget, fit

READ_BACK_SECONDS: Final = (0.0, 0.5, 1.5, 3.0)
"""Pauses before each look at what a BMC made of a PATCH."""
_UNFIT: Final = frozenset({400, 405, 422, 501})
"""How BMCs refuse a property, or a resource to write it to."""
_REMEDY: Final = "choose another spec.bmc.bootMethod, or update the BMC's firmware"


@dataclass(frozen=True)
class _Resource:
    """A document that has, or may have, the object Boot."""

    path: str
    boot: Mapping[str, Any]
    etag: str | None


class BootOverride:
    """`address` is the BMC's, for messages; `system` is sushy's, read just now."""

    def __init__(
        self, address: str, system: Any, firmware: BmcFirmware, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._address = address
        self._connector = system._conn  # noqa: SLF001 (sushy has no other way to it)
        self._firmware = firmware
        self._sleep = sleep
        self._system = _Resource(system.path, _boot_of(system.json), system._get_etag())  # noqa: SLF001
        self._settings_path = _settings_of(system.json)

    def write(self, target: OverrideTarget, uri: str | None) -> str | None:
        """Returns the URI that the BMC took, None where DHCP says it. Raises: BmcRefused; sushy's errors."""
        settings = self._read_settings()
        shown = {**self._system.boot, **(settings.boot if settings else {})}
        allowed = shown.get("BootSourceOverrideTarget@Redfish.AllowableValues")
        if isinstance(allowed, list) and allowed and target not in allowed:
            raise self._refuse(f"does not offer to boot by {target}, only by {fit(allowed)}")
        wanted: dict[str, Any] = {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": target}
        uri = uri if target == "UefiHttp" and "HttpBootUri" in shown else None
        if uri is not None or shown.get("HttpBootUri"):
            wanted["HttpBootUri"] = uri
        mode = self._mode(shown, target)
        self._patch(settings, wanted, mode if shown.get("BootSourceOverrideMode") else None)
        seen = self._read_back(wanted)
        if seen.get("BootSourceOverrideMode") not in (None, "", mode):
            wanted["BootSourceOverrideMode"] = mode
            self._patch(self._read_settings(), wanted, None)
            seen = self._read_back(wanted)
        if not _is_as(wanted, seen):
            has = fit({name: seen.get(name) for name in wanted}, 300)
            raise self._refuse(f"accepted the boot override {fit(wanted, 300)}, and has {has}")
        return uri

    def _mode(self, shown: Mapping[str, Any], target: OverrideTarget) -> str:
        """UEFI HTTP boot needs UEFI; else a server stays in the mode that it is in."""
        if target == "UefiHttp":
            return "UEFI"
        present = shown.get("BootSourceOverrideMode")
        return present if present in ("UEFI", "Legacy") else "UEFI" if self._firmware == "UEFI" else "Legacy"

    def _patch(self, settings: _Resource | None, wanted: Mapping[str, Any], mode: str | None) -> None:
        """To the resource that shows the override first; without the mode where that is what the BMC refuses."""
        refused: sushy.exceptions.HTTPError | None = None
        for place in self._places(settings):
            for body in [{**wanted, "BootSourceOverrideMode": mode}, wanted] if mode else [wanted]:
                try:
                    self._connector.patch(place.path, data={"Boot": body}, etag=place.etag)
                except sushy.exceptions.HTTPError as error:
                    if error.status_code not in _UNFIT:
                        raise
                    refused = refused or error
                else:
                    return
        if settings is None and (unlinked := self._read(f"{self._system.path}/SD")) is not None:
            self._settings_path = unlinked.path
            self._patch(unlinked, wanted, mode)
        elif refused is not None:
            raise refused

    def _places(self, settings: _Resource | None) -> Iterator[_Resource]:
        if settings is None:
            yield self._system
        elif "BootSourceOverrideTarget" in settings.boot:
            yield from (settings, self._system)
        else:
            yield from (self._system, settings)

    def _read_settings(self) -> _Resource | None:
        return self._read(self._settings_path) if self._settings_path is not None else None

    def _read(self, path: str) -> _Resource | None:
        try:
            answer = self._connector.get(path)
        except sushy.exceptions.ResourceNotFoundError:
            return None
        return _Resource(path, _boot_of(answer.json()), answer.headers.get("ETag"))

    def _read_back(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the BMC has now, once it is as wanted or has had its time."""
        seen: Mapping[str, Any] = {}
        for pause in READ_BACK_SECONDS:
            self._sleep(pause)
            paths = filter(None, (self._system.path, self._settings_path))
            shown = [each.boot for each in map(self._read, paths) if each is not None]
            seen = next((boot for boot in shown if _is_as(wanted, boot)), shown[0] if shown else {})
            if _is_as(wanted, seen):
                break
        return seen

    def _refuse(self, what: str) -> BmcRefused:
        return BmcRefused(f"BMC {self._address} {what}", reason="NotSupported", hint=_REMEDY)


def _is_as(wanted: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether the override is as wanted. One for ever in place of one boot is harmless: it is written for each boot. A
    BMC that does not show a property may have it all the same."""
    compared = ("BootSourceOverrideTarget", "BootSourceOverrideMode", "HttpBootUri")
    return seen.get("BootSourceOverrideEnabled") != "Disabled" and all(
        not wanted.get(name) or not seen.get(name) or seen[name] == wanted[name] for name in compared
    )


def _boot_of(document: Any) -> Mapping[str, Any]:
    boot = document.get("Boot") if isinstance(document, dict) else None
    return boot if isinstance(boot, dict) else {}


def _settings_of(document: Mapping[str, Any]) -> str | None:
    """Where the settings are that the system takes at its next boot."""
    settings = document.get("@Redfish.Settings")
    link = settings.get("SettingsObject") if isinstance(settings, dict) else None
    path = link.get("@odata.id") if isinstance(link, dict) else None
    return path if isinstance(path, str) else None
