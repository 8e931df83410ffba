"""nginx's configuration as text, and what the real nginx makes of it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import waitress.server
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.testing import capture_logs

from lab.control_plane.ports import free_port
from provisioner.api.machinery.errors import Refused
from provisioner.boot.host.nginx import NginxSite, nginx_command, render_nginx
from provisioner.boot.host.nginx_upkeep import follow_certificate, stamp_of
from provisioner.boot.host.peer import RealPeer
from provisioner.boot.host.processes import Child
from provisioner.boot.metrics.nginx_status import read_connections
from provisioner.boot.metrics.requests import read_line
from provisioner.boot.tftp.firmware import SERVED_FILES
from tests.boot.conftest import Programs
from tests.golden_files import assert_golden

SECONDS = 180
IMAGE = "sha256-" + "ab" * 32
SITE = NginxSite(
    addresses=("10.80.0.1",),
    scripts=Path("/var/lib/provisioner/scripts"),
    firmware=Path("/var/lib/provisioner/tftp"),
    firmware_files=SERVED_FILES,
    images=Path("/var/lib/provisioner/images"),
    run=Path("/var/lib/provisioner/nginx"),
    socket=Path("/var/lib/provisioner/run/answers.sock"),
    access_log=Path("/var/lib/provisioner/log/access.json"),
    user="www-data",
    certificate=Path("/etc/provisioner/join.pem"),
    key=Path("/etc/provisioner/join.key"),
)


def test_the_configuration_is_the_golden_one() -> None:
    assert_golden("boot/nginx.conf", render_nginx(SITE))


def test_a_golden_one_without_root_without_certificate_behind_a_proxy() -> None:
    site = replace(
        SITE,
        user=None,
        certificate=None,
        key=None,
        trusted_proxies=("10.0.0.0/8",),
        http_port=8080,
        caches=("10.90.0.0/24", "10.80.0.5"),
        image_slots=7,
    )
    assert_golden("boot/nginx-plain.conf", render_nginx(site))


@pytest.mark.parametrize("path", ["relative", "/a b", "/a;b", "/a{b", "/a\nb", "/a$b", "/a'b", '/a"b'])
def test_a_path_that_could_be_a_directive_is_refused(path: str) -> None:
    with pytest.raises(Refused, match="cannot be written"):
        replace(SITE, images=Path(path))


@pytest.mark.parametrize(
    "fields",
    [{"addresses": ("10.80.0.1 default_server",)}, {"user": "a b"}, {"workers": "2;"}, {"key": None},
     {"trusted_proxies": ("everybody",)}, {"caches": ("10.0.0.0/8 x; ",)}, {"firmware_files": ("../../etc/shadow",)}],
)  # fmt: skip
def test_other_values_that_could_be_directives_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        replace(SITE, **fields)


@dataclass
class Running:
    """nginx in front of an application that answers with what it was told."""

    port: int
    join_port: int
    state: Path
    seen: list[dict[str, str]] = field(default_factory=list)
    child: Child | None = None
    test_command: list[str] = field(default_factory=list)

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.ask("GET", path, headers=headers)

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        tls: bool = False,
    ) -> tuple[int, dict[str, str], bytes]:
        connection: http.client.HTTPConnection
        if tls:
            context = ssl.create_default_context(cafile=str(self.state / "cert.pem"))
            connection = http.client.HTTPSConnection("127.0.0.1", self.join_port, context=context, timeout=SECONDS)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()


def make_certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    import ipaddress

    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "key.pem").chmod(0o600)


@pytest.fixture
def nginx(programs: Programs) -> Iterator[Running]:
    tmp_path = programs.shared
    running = Running(free_port("127.0.0.1"), free_port("127.0.0.1"), tmp_path)
    for folder in ("scripts/ipxe", "tftp", f"images/{IMAGE}", "images/secret", "images/parts", "run", "log", "nginx"):
        (tmp_path / folder).mkdir(parents=True)
    make_certificate(tmp_path)
    (tmp_path / "scripts/ipxe/52-54-00-00-00-01.ipxe").write_text("#!ipxe\necho one\n")
    (tmp_path / "scripts/ipxe/.52-54-00-00-00-01.ipxe.7").write_text("half")
    (tmp_path / "scripts/boot.ipxe").write_text("#!ipxe\necho first\n")
    (tmp_path / "scripts/starting.ipxe").write_text("#!ipxe\necho starting\n")
    for name in SERVED_FILES:
        (tmp_path / "tftp" / name).write_bytes(name.encode())
    (tmp_path / f"images/{IMAGE}/root.squashfs").write_bytes(bytes(range(256)) * 1024)
    (tmp_path / f"images/{IMAGE}/.partial").write_text("half")
    (tmp_path / f"images/{IMAGE}/manifest").write_text("manifest")
    (tmp_path / "images/secret/key").write_text("no")
    (tmp_path / "images/.lock").write_text("")
    (tmp_path / f"images/parts/{IMAGE}").write_bytes(b"a part of an image")
    for name in (f".{IMAGE}.partial", "notes", f"{IMAGE}x"):
        (tmp_path / "images/parts" / name).write_text("no")

    def answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        running.seen.append(
            {k: str(v) for k, v in environ.items() if k.startswith(("HTTP_", "REMOTE", "PATH", "QUERY"))}
        )
        running.seen[-1]["scheme"] = environ["wsgi.url_scheme"]
        running.seen[-1]["body"] = environ["wsgi.input"].read().decode()
        status = "500 Oops" if environ["PATH_INFO"] == "/v1/broken" else "200 OK"
        start_response(status, [("Content-Type", "text/plain")])
        return [b"answered\n"]

    server = waitress.server.create_server(
        RealPeer(answer), unix_socket=str(tmp_path / "run/answers.sock"), unix_socket_perms="666",
        clear_untrusted_proxy_headers=False, ident=None,
    )  # fmt: skip
    threading.Thread(target=server.run, daemon=True).start()
    site = NginxSite(
        addresses=("127.0.0.1",), scripts=tmp_path / "scripts", firmware=tmp_path / "tftp", firmware_files=SERVED_FILES,
        images=tmp_path / "images", run=tmp_path / "nginx", socket=tmp_path / "run/answers.sock",
        access_log=tmp_path / "log/access.json", user="www-data", certificate=tmp_path / "cert.pem",
        key=tmp_path / "key.pem", http_port=running.port, join_port=running.join_port, workers="1", open_files=1024,
        requests_per_second=5, burst=20, image_slots=3, images_per_client=2, caches=("127.0.0.9",),
    )  # fmt: skip
    configuration = tmp_path / "nginx/nginx.conf"
    configuration.write_text(render_nginx(site))
    checked = subprocess.run(
        programs.enter(nginx_command(site.run, configuration, test=True)), capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    stop = threading.Event()
    child = Child("nginx", nginx_command(site.run, configuration), enter=programs.enter)
    running.child = child
    running.test_command = programs.enter(nginx_command(site.run, configuration, test=True))
    thread = threading.Thread(target=child.run, args=(stop,))
    thread.start()
    try:
        wait_for_port(running.port)
        yield running
    finally:
        stop.set()
        thread.join(SECONDS)
        server.trigger.pull_trigger(server.close)


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nothing listens on {port}"
            time.sleep(0.05)


def test_scripts_images_and_first_stage_are_files(nginx: Running) -> None:
    assert nginx.get("/boot.ipxe")[2] == b"#!ipxe\necho first\n"
    status, headers, body = nginx.get("/ipxe/52-54-00-00-00-01.ipxe?uuid=a&serial=b")
    assert (status, body) == (200, b"#!ipxe\necho one\n")
    assert headers["cache-control"] == "no-store"
    for path in ("/snponly.efi", "//snponly.efi", "/tftp/snponly.efi", "/tftp//snponly.efi"):
        status, _, body = nginx.get(path)
        assert (status, body) == (200, b"snponly.efi"), f"{path}: firmware follows no redirect"
    assert nginx.get("/tftp/autoexec.ipxe")[2] == b"autoexec.ipxe"
    status, headers, body = nginx.get(f"/images/{IMAGE}/root.squashfs")
    assert (status, len(body)) == (200, 256 * 1024)
    assert "immutable" in headers["cache-control"]
    assert nginx.seen == [], "none of this reached the application"


def test_a_part_of_an_image_is_served_by_its_own_digest(nginx: Running) -> None:
    status, headers, body = nginx.get(f"/images/parts/{IMAGE}")
    assert (status, body) == (200, b"a part of an image")
    assert "immutable" in headers["cache-control"]


def test_ranges_of_a_file_are_served(nginx: Running) -> None:
    status, headers, body = nginx.get(f"/images/{IMAGE}/root.squashfs", Range="bytes=256-511")
    assert (status, body) == (206, bytes(range(256)))
    assert headers["content-range"] == "bytes 256-511/262144"
    assert nginx.get(f"/images/{IMAGE}/root.squashfs", Range="bytes=999999-")[0] == 416


def test_more_images_than_the_link_carries_are_asked_for_again_and_a_racks_cache_need_not_wait(nginx: Running) -> None:
    large = f"/images/{IMAGE}/large"
    # More than sockets hold, and nobody reads it.
    (nginx.state / large.lstrip("/")).write_bytes(bytes(64 << 20))
    with ExitStack() as stack:

        def ask(client: str, path: str = large) -> tuple[int, str | None]:
            connection = http.client.HTTPConnection(
                "127.0.0.1", nginx.port, timeout=SECONDS, source_address=(client, 0)
            )
            stack.callback(connection.close)
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.headers["Retry-After"]

        assert [ask(client) for client in ("127.0.0.2", "127.0.0.2", "127.0.0.2")] == [
            (200, None), (200, None), (503, "10")
        ], "one machine alone does not get them all"  # fmt: skip
        assert [ask(client) for client in ("127.0.0.3", "127.0.0.4")] == [(200, None), (503, "10")]
        assert [ask("127.0.0.9") for _ in range(2)] == [(200, None), (200, None)]
        assert ask("127.0.0.4", f"/images/{IMAGE}/manifest") == (200, None)
        assert ask("127.0.0.4", "/boot.ipxe") == (200, None)
        assert read_connections(nginx.state / "nginx/status.sock").writing >= 5, "what is sent is seen to be"
    deadline = time.monotonic() + SECONDS
    while nginx.get(f"/images/{IMAGE}/root.squashfs")[0] != 200:  # it is noticed a little later that they are gone
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_is_counted_has_no_word_of_who_asked(nginx: Running) -> None:
    """Each request is a line of nginx's own words, whatever is in its path and its headers."""
    log = nginx.state / "log/requests.log"
    part = f"parts/{IMAGE}"
    hostile = "x 200 9 0.0 -\\nscript 200 9 0.0 -"
    asked = [
        ("/boot.ipxe", "first_script 200 18"), ("/ipxe/52-54-00-00-00-01.ipxe?a=b", "script 200 16"),
        ("/ipxe/52-54-00-00-00-09.ipxe?serial=a%20b", "waiting_script 200 9"), ("/snponly.efi", "firmware 200 11"),
        ("/tftp//snponly.efi", "firmware 200 11"), (f"/images/{part}", "part 200 18"), ("/v1/broken", "other 500 9"),
        (f"/images/{IMAGE}/manifest", "manifest 200 8"), (f"/images/{IMAGE}/root.squashfs", "layer 200 262144"),
        ("/healthz", "health 200 9"), ("/images/parts/sha256-no", "part 404"), (f"/images/{part}%0ax", "part 404"),
        ("/x%20200%209%200.0%20-%0ascript%20200%209%200.0%20-", "other 404"), ("/starting.ipxe", "starting_script 404"),
        ("/ipxe/%0ascript%20200", "script 200 9"),
    ]  # fmt: skip
    for path, _ in asked:
        nginx.get(path, **{"User-Agent": hostile, "X-Real-IP": hostile, "Referer": hostile, "Origin": hostile})
    deadline = time.monotonic() + SECONDS
    while len(lines := log.read_text().splitlines()) < len(asked):
        assert time.monotonic() < deadline, lines
        time.sleep(0.1)
    assert [line.split(" ")[: len(said.split(" "))] for line, (_, said) in zip(lines, asked, strict=True)] == [
        said.split(" ") for _, said in asked
    ]
    assert [line.split(" ")[4] for line in lines if "parts/" in line] == [part]
    assert all(read_line(line.encode()) is not None for line in lines)
    assert hostile not in log.read_text()


@pytest.mark.parametrize(
    "path",
    [
        "/", "/images/", f"/images/{IMAGE}/", f"/images/{IMAGE}/.partial", "/images/secret/key", "/images/../cert.pem",
        f"/images/{IMAGE}/../../key.pem", f"/images/{IMAGE}/%2e%2e/%2e%2e/key.pem", "/scripts/boot.ipxe", "/key.pem",
        "/ipxe/.52-54-00-00-00-01.ipxe.7", "/starting.ipxe", "/v1/unknown?mac=52:54:00:00:00:09", "/.git/config",
        "/tftp/", "/tftp/../cert.pem", "/nginx/nginx.conf", "/images/.lock", "/images/parts/", "/images/parts/notes",
        f"/images/parts/.{IMAGE}.partial", f"/images/parts/{IMAGE}x", f"/images/parts/{IMAGE}/x", f"/images/{IMAGE}",
    ],
)  # fmt: skip
def test_nothing_else_is_served(nginx: Running, path: str) -> None:
    assert nginx.get(path)[0] in (400, 404)
    assert nginx.seen == []


@pytest.mark.parametrize("path", ["/boot.ipxe", f"/{SERVED_FILES[0]}", f"/images/{IMAGE}/root.squashfs"])
def test_who_asks_a_file_by_another_method_is_told_which_there_are(nginx: Running, path: str) -> None:
    status, headers, _ = nginx.ask("POST", path, body=b"x")
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    status, headers, _ = nginx.ask("GET", path)
    assert status == 200
    assert "allow" not in headers


def test_a_machine_without_a_file_is_answered_by_the_service_with_all_it_said(nginx: Running) -> None:
    status, _, body = nginx.get("/ipxe/52-54-00-00-00-09.ipxe?uuid=u&serial=s%20t&mac=forged")
    assert (status, body) == (200, b"answered\n")
    assert nginx.seen[0]["PATH_INFO"] == "/v1/unknown"
    assert nginx.seen[0]["QUERY_STRING"] == "mac=52-54-00-00-00-09&uuid=u&serial=s%20t&mac=forged"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/ipxe/"), ("GET", "/ipxe/x"), ("GET", "/ipxe/a/b/c.ipxe"), ("POST", "/ipxe/52-54-00-00-00-01.ipxe")],
)
def test_firmware_that_asks_for_nonsense_gets_a_script_and_no_error(nginx: Running, method: str, path: str) -> None:
    assert nginx.ask(method, path)[0] == 200


def test_what_a_client_says_of_its_address_is_overwritten(nginx: Running) -> None:
    nginx.ask(
        "POST", "/v1/progress", body=b"{}",
        headers={"X-Real-IP": "6.6.6.6", "X-Forwarded-For": "6.6.6.6", "Forwarded": "for=6.6.6.6",
                 "X_Real_IP": "6.6.6.6", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil"},
    )  # fmt: skip
    (seen,) = nginx.seen
    assert seen["REMOTE_ADDR"] == "127.0.0.1"
    assert seen["scheme"] == "http"
    assert "6.6.6.6" not in json.dumps(seen)
    assert "evil" not in json.dumps(seen)


def test_the_join_is_answered_over_tls_alone(nginx: Running) -> None:
    status, headers, body = nginx.ask("POST", "/v1/join", body=b"{}")
    assert (status, json.loads(body)["reason"]) == (403, "NotEncrypted")
    assert headers["content-type"] == "application/json"
    assert nginx.seen == []
    status, headers, _ = nginx.ask(
        "POST", "/v1/join", body=b'{"a":1}', tls=True, headers={"X-Forwarded-For": "6.6.6.6"}
    )
    assert status == 200
    assert headers["cache-control"] == "no-store"
    assert (nginx.seen[0]["scheme"], nginx.seen[0]["REMOTE_ADDR"]) == ("https", "127.0.0.1")
    assert nginx.seen[0]["body"] == '{"a":1}'
    assert nginx.ask("GET", "/healthz", tls=True)[0] == 200
    assert nginx.ask("GET", "/boot.ipxe", tls=True)[0] == 404
    assert nginx.ask("GET", "/v1/unknown", tls=True)[0] == 404


def test_what_runs_reports_and_fetches_images_over_tls(nginx: Running) -> None:
    assert nginx.ask("POST", "/v1/progress", body=b'{"a":1}', tls=True)[0] == 200
    assert (nginx.seen[0]["PATH_INFO"], nginx.seen[0]["scheme"]) == ("/v1/progress", "https")
    for path in (f"/images/parts/{IMAGE}", f"/images/{IMAGE}/manifest"):
        assert nginx.ask("GET", path, tls=True)[::2] == nginx.get(path)[::2]
        assert nginx.ask("GET", path, tls=True)[0] == 200
    for path in ("/images/secret/key", "/images/.lock", f"/images/{IMAGE}/.partial", "/images/join-authorities"):
        assert nginx.ask("GET", path, tls=True)[0] == 404, path


def test_announced_authorities_are_given_in_the_clear_and_never_kept_by_caches(nginx: Running) -> None:
    assert nginx.get("/images/join-authorities")[0] == 404
    for name in ("join-authorities", "join-authorities.sig"):
        (nginx.state / "images" / name).write_text(name)
        status, headers, body = nginx.get(f"/images/{name}")
        assert (status, headers["cache-control"], body) == (200, "no-cache", name.encode())
        (nginx.state / "images" / name).unlink()
    assert nginx.get("/images/join-authorities.key")[0] == 404


def test_a_renewed_certificate_is_served_once_its_key_is_there(nginx: Running) -> None:
    files = [nginx.state / "cert.pem", nginx.state / "key.pem"]
    renewed = nginx.state / "renewed"
    renewed.mkdir()
    make_certificate(renewed)
    first, second = files[0].read_text(), (renewed / "cert.pem").read_text()
    assert nginx.child is not None
    stop = threading.Event()
    arguments = (files, stamp_of(files), nginx.test_command, nginx.child, stop)
    thread = threading.Thread(target=follow_certificate, args=arguments, kwargs={"look_seconds": 0.05})
    with capture_logs() as lines:
        thread.start()
        try:
            (renewed / "cert.pem").rename(files[0])
            wait_until(lambda: "renewed certificate was not loaded" in [line["event"] for line in lines])
            assert served_certificate(nginx) == first, "a certificate without its key is not taken"
            (renewed / "key.pem").rename(files[1])
            wait_until(lambda: served_certificate(nginx) == second)
        finally:
            stop.set()
            thread.join(SECONDS)
    assert [line["event"] for line in lines][-1] == "renewed certificate was loaded"
    wait_until(lambda: answers_with_the_new_one(nginx))  # a worker that is being replaced may take one connection more


def answers_with_the_new_one(nginx: Running) -> bool:
    try:
        return bool(nginx.ask("GET", "/healthz", tls=True)[0] == 200)
    except ssl.SSLCertVerificationError:
        return False


def served_certificate(nginx: Running) -> str:
    return ssl.get_server_certificate(("127.0.0.1", nginx.join_port), timeout=SECONDS)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def test_bodies_are_bounded(nginx: Running) -> None:
    assert nginx.ask("POST", "/v1/progress", body=b"x" * 5000)[0] == 413
    assert nginx.ask("POST", "/v1/join", body=b"x" * 300_000, tls=True)[0] == 413
    assert nginx.seen == []


def test_one_source_that_asks_without_end_is_slowed_down_and_firmware_still_gets_a_script(nginx: Running) -> None:
    answers: list[int] = []
    while 429 not in answers and len(answers) < 1000:  # a slow machine asks for longer until it has asked too often
        answers.append(nginx.ask("POST", "/v1/progress", body=b"{}")[0])
    assert set(answers) == {200, 429}
    status, _, body = nginx.get("/ipxe/52-54-00-00-00-09.ipxe")
    assert status == 200
    assert body in (b"answered\n", b"#!ipxe\necho starting\n")
    assert nginx.get("/ipxe/52-54-00-00-00-01.ipxe")[0] == 200, "files are not limited"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_neighbour_who_asks_for_health_without_end_does_not_keep_the_service_busy(nginx: Running, path: str) -> None:
    answers: list[int] = []
    while 429 not in answers and len(answers) < 5000:
        answers.append(nginx.get(path)[0])
    assert set(answers) == {200, 429}
    asked = len(nginx.seen)
    refused = [nginx.get(path)[0] for _ in range(50)].count(429)
    assert refused > 0
    assert len(nginx.seen) - asked == 50 - refused, "nobody behind nginx hears of the others"
    assert nginx.ask("POST", "/v1/progress", body=b"{}")[0] == 200, "the same machine's boot is not slowed down"


def test_while_the_service_is_away_machines_are_told_to_wait(nginx: Running) -> None:
    (nginx.state / "run/answers.sock").unlink()
    status, _, body = nginx.get("/ipxe/52-54-00-00-00-09.ipxe")
    assert (status, body) == (200, b"#!ipxe\necho starting\n")
    assert nginx.get("/ipxe/52-54-00-00-00-01.ipxe")[2] == b"#!ipxe\necho one\n"
    assert nginx.ask("POST", "/v1/progress", body=b"{}")[0] == 502


def test_the_access_log_holds_no_query_and_no_body(nginx: Running) -> None:
    nginx.get("/ipxe/52-54-00-00-00-09.ipxe?serial=SECRET1")
    nginx.ask("POST", "/v1/join?token=SECRET2", body=b"SECRET3", tls=True)
    nginx.get("/ipxe/52-54-00-00-00-01.ipxe", **{"User-Agent": 'a"b\nc'.replace("\n", "\\n")})
    path = nginx.state / "log/access.json"
    deadline = time.monotonic() + SECONDS
    while len(path.read_text().splitlines()) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    paths = [line["path"] for line in lines]
    assert "/ipxe/52-54-00-00-00-09.ipxe" in paths
    assert "/v1/join" in paths
    assert "SECRET" not in path.read_text()
