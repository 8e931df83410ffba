"""`python -m tests.benchmarks.swarm.tracker ADDRESS PORT`: a BitTorrent tracker of one torrent, which tells each
peer of all others."""

from __future__ import annotations

import ipaddress
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.benchmarks.swarm.aria2 import bencode

PEERS: dict[str, int] = {}


# Not pytest-httpserver: a process of its own, in the network namespace of a benchmark.
class Announce(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        asker = self.client_address[0]
        PEERS[asker] = int(parse_qs(urlsplit(self.path).query, encoding="latin-1")["port"][0])
        others = [(address, port) for address, port in PEERS.items() if address != asker]
        compact = b"".join(ipaddress.ip_address(a).packed + port.to_bytes(2, "big") for a, port in others)
        body = bencode({"interval": 2, "min interval": 1, "peers": compact})
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Announce).serve_forever()
