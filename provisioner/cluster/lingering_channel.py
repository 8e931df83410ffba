"""Connections of waitress that end so that an answer arrives also where the request was refused before its end."""

from __future__ import annotations

import time
from contextlib import suppress

from waitress.channel import HTTPChannel

from provisioner.node.http.lingering_close import LingeringClose


class LingeringChannel(HTTPChannel):  # type: ignore[misc]
    """To be the `channel_class` of a server. A connection that lingers holds no thread, and is one of those that are
    closed where there are too many."""

    close_when_flushed: bool
    _closing: LingeringClose | None = None

    def readable(self) -> bool:
        if self._closing is None:
            return bool(super().readable())
        if time.monotonic() >= self._closing.ends:  # this is called in each turn of the loop
            self.will_close = True
        return not self.will_close

    def handle_read(self) -> None:
        if self._closing is None:
            super().handle_read()
            return
        with suppress(BlockingIOError):
            if not self._closing.discard():
                self.handle_close()

    def handle_write(self) -> None:
        if not self.close_when_flushed or self.will_close:
            super().handle_write()
            return
        self._flush_exception(self._flush_some)
        if self.socket is not None and not self.total_outbufs_len and not self.will_close:
            self.close_when_flushed = False
            self._closing = LingeringClose(self.socket)
