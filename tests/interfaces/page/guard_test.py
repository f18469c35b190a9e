"""The gate: hosts, token, cookie, methods and headers."""

from __future__ import annotations

import re

import page_client
import pytest
from starlette import responses, types

from seedzero.core import host_names
from seedzero.interfaces.page import guard

TOKEN = "correct-horse"


async def _inside(scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
    path = "" if scope["path"] == "/" else f" {scope['path']}"
    await responses.PlainTextResponse(f"inside{path}")(scope, receive, send)


def _client(*, host: str = "127.0.0.1", token: str = "", root: str = "", proxy: str = "") -> page_client.Client:
    hosts = host_names.HostNames(host, own=("machine", "machine.lan"), proxy=proxy)
    return page_client.Client(guard.Gate(_inside, hosts, token, "cookie_1", "<form>", root))


@pytest.mark.parametrize(
    ("host", "header", "is_allowed"),
    [
        ("127.0.0.1", "127.0.0.1:80", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "LOCALHOST:8000", True),
        ("127.0.0.1", "[::1]:80", True),
        ("127.0.0.1", "machine:80", False),
        ("127.0.0.1", "10.0.0.1", False),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "localhost:80@evil", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", ":80", False),
        ("0.0.0.0", "machine:80", True),
        ("0.0.0.0", "machine.lan", True),
        ("0.0.0.0", "10.0.0.1:80", True),
        ("0.0.0.0", "[fe80::1]", True),
        ("0.0.0.0", "evil.example:80", False),
        ("box.lan", "box.lan:9", True),
    ],
)
def test_only_the_pages_names_are_answered(host: str, header: str, is_allowed: bool) -> None:
    answer = _client(host=host).get("/", headers={"host": header})
    assert answer.status_code == (200 if is_allowed else 421)
    assert is_allowed or "localhost" in answer.json()["error"]


def test_two_host_headers_are_refused() -> None:
    assert _client().get("/", headers=[("host", "localhost"), ("host", "evil")]).status_code == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_reading(method: str) -> None:
    for client in (_client(), _client(token=TOKEN)):
        assert client.request(method, "/api/runs").status_code == 405
    assert _client().post("/token", content=f"token={TOKEN}").status_code == 405
    assert _client().request("HEAD", "/").status_code == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 403),
    ],
)
def test_what_may_be_posted_is_json_of_the_page_itself(headers: dict[str, str], code: int) -> None:
    hosts = host_names.HostNames("127.0.0.1", own=())
    client = page_client.Client(guard.Gate(_inside, hosts, "", "cookie_1", "<form>", posts=frozenset({"/api/play"})))
    given = {"content-type": "application/json", **headers}
    assert client.post("/api/play", content="{}", headers=given).status_code == code
    assert client.post("/api/runs", content="{}", headers=given).status_code == 405


def test_another_site_is_not_answered() -> None:
    assert _client().get("/api/runs", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert _client().get("/api/runs", headers={"sec-fetch-site": "same-origin"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/stream", "/else"])
def test_without_the_token_nothing_is_shown(path: str) -> None:
    for headers in ({}, {"cookie": "cookie_1=x"}, {"cookie": "cookie_1="}, {"cookie": "\x01;="}):
        answer = _client(token=TOKEN).get(path, headers=headers)
        assert answer.status_code == 401 and "inside" not in answer.text
    assert _client(token=TOKEN).get("/static/style.css").text == "inside /static/style.css"


def test_the_token_is_exchanged_once_for_a_cookie() -> None:
    for exchange in (
        lambda client: client.get("/", params={"token": TOKEN}),
        lambda client: client.post("/token", content=f"token={TOKEN}%0A"),
    ):
        client = _client(token=TOKEN)
        answer = exchange(client)
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("cookie_1=") and TOKEN not in cookie
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {*cookie.split("; ")}
        assert client.get("/").text == "inside"
        assert _client(token="another").get("/", headers={"cookie": cookie}).status_code == 401


@pytest.mark.parametrize(
    "other",
    ['prefs={"theme": "dark", "columns": [1, 2]}', "name=two words", "name=J\xfcrgen", "=", "cookie_1=x", "a@b=1"],
)
def test_another_programs_cookie_hides_nothing(other: str) -> None:
    value = _client(token=TOKEN).get("/", params={"token": TOKEN}).headers["set-cookie"].partition(";")[0]
    for cookie in (f"{other}; {value}", f"{value}; {other}", f"{other};{value};{other}"):
        headers = {"cookie": cookie.encode("latin-1")}
        assert _client(token=TOKEN).get("/", headers=headers).status_code == 200, cookie
        headers = {"cookie": cookie.replace(value, f"{value}0").encode("latin-1")}
        assert _client(token=TOKEN).get("/", headers=headers).status_code == 401, cookie


def test_a_proxy_may_keep_its_path_or_leave_it_out() -> None:
    client = _client(root="/user/a%40b/proxy/8000")
    for root in ("", "/user/a%40b/proxy/8000"):
        assert client.get(f"{root}/").text == "inside"
        assert client.get(f"{root}/api/runs").text == "inside /api/runs"
    answer = client.get("/user/a%40b/proxy/8000")
    assert (answer.status_code, answer.headers["location"]) == (307, "8000/")
    assert client.get("/user/a%40b/proxy/80001/").text.startswith("inside /user")


def test_behind_a_proxy_the_cookie_is_for_the_pages_path_alone() -> None:
    for root in ("", "/proxy/8000"):
        client = _client(token=TOKEN, root="/proxy/8000")
        answer = client.post(f"{root}/token", content=f"token={TOKEN}")
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        assert "Path=/proxy/8000/" in answer.headers["set-cookie"].split("; ")
        assert client.get("/proxy/8000/api/runs").text == "inside /api/runs"
        assert client.get("/proxy/8000/", headers={"cookie": ""}).status_code == 401


def test_the_proxys_name_is_answered() -> None:
    for name in ("hub.example.org", "10.0.0.7"):
        headers = {"host": f"{name}:8888"}
        assert _client(proxy=name).get("/", headers=headers).status_code == 200
        assert "--page.root" in _client().get("/", headers=headers).json()["error"]


@pytest.mark.parametrize("content", ["", "token=", "token=wrong", "token=" + "x" * 9000, "token=%ff", "\xff"])
def test_a_wrong_token_gets_the_form_again(content: str) -> None:
    answer = _client(token=TOKEN).post("/token", content=content.encode("latin-1"))
    assert (answer.status_code, answer.text) == (403, "<form>") and "set-cookie" not in answer.headers
    assert _client(token=TOKEN).get("/", params={"token": "wrong"}).status_code == 403


def test_answers_forbid_everything_but_the_pages_own_files() -> None:
    for client in (_client(), _client(token=TOKEN)):
        headers = client.get("/").headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert not re.search(r"https?:|\*", policy)
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("machine", False)],
)  # fmt: skip
def test_loopback(host: str, expected: bool) -> None:
    assert host_names.is_loopback(host) is expected
