"""Who is answered, and with which headers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from flask.testing import FlaskClient

from provisioner.cli.service.web_words import WordsOfCommands
from provisioner.web.access.guard import COOKIE, LOOPBACK_HOSTS
from provisioner.web.pages.service import Listening, WebService
from provisioner.web.pages.session import local
from tests.web.fake_source import fake_caches
from tests.web.made_up_fleet import make_fleet
from tests.web.test_gate import ADA, FakeReviews

PAGES = ("/", "/racks/r01", "/servers/r01-u16", "/maintenances", "/pools", "/pools/gpu", "/events", "/no-such-page")


def client(*, with_tokens: bool, hosts: tuple[str, ...] = ()) -> FlaskClient:
    fleet, api = make_fleet(8), FakeReviews()

    def now() -> datetime:
        return datetime.now(UTC)

    caches = fake_caches(racks=fleet.racks, servers=fleet.servers, pools=fleet.pools, images=fleet.images)
    listening = Listening(address="127.0.0.1", port=0, with_tokens=with_tokens, audience=None, hosts=hosts, viewers=2)
    cluster: Any = api if with_tokens else None
    service = WebService(
        caches, WordsOfCommands(caches, now=now), listening, cluster=cluster, now=now, monotonic=lambda: 0.0
    )
    service.follower.step()
    return service.app.test_client()


@pytest.mark.parametrize(
    "host", ["evil.example.com", "127.0.0.1.evil.example.com", "10.0.0.7:8080", "", "localhost.", "[::1]x"]
)
def test_a_foreign_name_that_leads_to_this_address_is_refused_where_no_token_is_asked_for(host: str) -> None:
    answer = client(with_tokens=False, hosts=LOOPBACK_HOSTS).get("/", headers={"Host": host})
    assert answer.status_code in (400, 421)
    assert b"r01" not in answer.data


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:3000", "[::1]:8080", "LOCALHOST:1"])
def test_the_names_of_this_machine_are_answered_to(host: str) -> None:
    assert client(with_tokens=False, hosts=LOOPBACK_HOSTS).get("/", headers={"Host": host}).status_code == 200


def test_a_kubelet_asks_for_health_by_the_pods_address_and_sees_nothing_else() -> None:
    visitor = client(with_tokens=True, hosts=("fleet.example.com",))
    for path, status in (("/healthz", 200), ("/readyz", 200), ("/", 421), ("/login", 421), ("/static/live.js", 421)):
        assert visitor.get(path, headers={"Host": "10.244.1.7:8080"}).status_code == status, path
    assert visitor.get("/", headers={"Host": "fleet.example.com"}).status_code == 401


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_sites_page_gets_nothing_by_a_persons_browser(path: str, site: str) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
    assert client(with_tokens=False).get(path, headers=headers).status_code == 403
    framed = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert client(with_tokens=False).get(path, headers=framed).status_code == 403


def test_a_link_from_another_site_is_followed() -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client(with_tokens=False).get("/servers/r01-u16", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example.com"},
        {"Origin": "null"},
    ],
)
def test_nobody_is_logged_in_or_out_by_another_site(headers: dict[str, str]) -> None:
    visitor = client(with_tokens=True)
    for path in ("/login", "/logout"):
        assert visitor.post(path, data={"token": ADA}, headers=headers).status_code == 403


@pytest.mark.parametrize("path", PAGES[:-1])
def test_a_page_needs_a_token_and_the_login_does_not(path: str) -> None:
    visitor = client(with_tokens=True)
    answer = visitor.get(path)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    page = visitor.get(path, headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["Location"].split("?")[0]) == (303, "/login")
    assert visitor.get(page.headers["Location"]).status_code == 200
    assert visitor.get("/", headers={"Authorization": f"Bearer {ADA}"}).status_code == 200


def test_the_proxys_word_counts_before_the_cookie() -> None:
    visitor = client(with_tokens=True)
    visitor.set_cookie(COOKIE, ADA)
    assert visitor.get("/").status_code == 200
    assert visitor.get("/", headers={"Authorization": "Bearer somebody-else"}).status_code == 401
    assert visitor.get("/", headers={"Authorization": "Basic YTpi"}).status_code == 401
    assert visitor.get("/", headers={"Authorization": ""}).status_code == 401


def test_the_cookie_is_the_browsers_alone() -> None:
    answer = client(with_tokens=True).post("/login", data={"token": ADA, "next": "/pools"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/pools")
    cookie = answer.headers["Set-Cookie"]
    for word in ("__Host-provisioner-token=", "Secure", "HttpOnly", "SameSite=Lax", "Path=/"):
        assert word in cookie
    assert "Domain" not in cookie


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example.com",
        "//evil.example.com",
        "/\\evil.example.com",
        "javascript:alert(1)",
        "",
        "/a\nb",
        "/" + "x" * 2000,
    ],
)
def test_a_login_sends_nobody_elsewhere(path: str) -> None:
    assert local(path) == "/"
    answer = client(with_tokens=True).post("/login", data={"token": ADA, "next": path})
    assert answer.headers["Location"] == "/"


def test_every_answer_has_the_headers_that_hold_a_browser_to_it() -> None:
    visitor = client(with_tokens=True)
    for path in (*PAGES, "/login", "/healthz", "/static/live.js", "/static/style.css"):
        headers = visitor.get(path).headers
        policy = dict(each.strip().split(" ", 1) for each in headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Referrer-Policy"] == "no-referrer"
    assert visitor.get("/", headers={"Authorization": f"Bearer {ADA}"}).headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", PAGES[:-2])
def test_no_page_asks_for_anything_elsewhere_or_holds_a_script_or_a_style(path: str) -> None:
    text = client(with_tokens=False).get(path).get_data(as_text=True)
    assert not re.search(r"https?://", text)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text)
    assert re.findall(r"<script[^>]*>", text) == re.findall(
        r'<script type="module" src="/static/live.js\?v=[0-9a-f]{12}">', text
    )
    assert "</script></head>" in text.replace("\n", "")


def test_nothing_is_changed_by_any_request() -> None:
    visitor = client(with_tokens=False)
    for path in PAGES:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert visitor.open(path, method=method).status_code in (404, 405)


def test_streams_are_bounded_for_all_and_asked_for_politely() -> None:
    visitor = client(with_tokens=False)
    for _ in range(3):
        with visitor.head("/events") as nobody_follows:
            assert nobody_follows.status_code == 200
    open_ones = [visitor.get("/events", buffered=False) for _ in range(2)]
    full = visitor.get("/events")
    assert (full.status_code, full.headers["Retry-After"]) == (503, "30")
    open_ones[0].close()
    assert visitor.get("/events", buffered=False).status_code == 200
    assert visitor.get("/events?of=secrets/x").status_code == 400
