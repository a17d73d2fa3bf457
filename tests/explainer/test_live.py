"""The live server: it answers this machine's own page, and nobody and nothing else."""

from __future__ import annotations

import http.client
import json
import threading
import webbrowser
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from glassformer.explainer import live
from glassformer.explainer.live import LiveServer
from glassformer.explainer.page import static_names
from tests.explainer.golden import SENTENCE, golden_translator


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer(golden_translator(), SENTENCE, "golden") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: LiveServer, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host="Host" in headers)
    if body is not None and "Content_Length" not in headers:
        headers["Content_Length"] = str(len(body))
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders(body)
    response = connection.getresponse()
    answer = Answer(response.status, response.headers, response.read())
    connection.close()
    return answer


def trace(server: LiveServer, **question: Any) -> Answer:
    return ask(server, "POST", f"/api/trace?token={server.token}", json.dumps(question).encode())


def test_it_listens_on_loopback_only(server: LiveServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/?token={server.token}"
    assert len(server.token) >= 32


def test_the_page_and_its_files_are_served(server: LiveServer) -> None:
    page = ask(server, "GET", f"/?token={server.token}")
    assert page.status == 200
    assert b"data-live" in page.body
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    kinds = {"js": "text/javascript", "css": "text/css", "html": "text/html"}
    for name in static_names():
        found = ask(server, "GET", f"/{name}")
        assert found.status == 200
        assert found.headers["Content-Type"].startswith(kinds[name.rpartition(".")[2]])


def test_every_answer_forbids_what_the_page_does_not_need(server: LiveServer) -> None:
    for answer in (ask(server, "GET", f"/?token={server.token}"), ask(server, "GET", "/"), trace(server)):
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert "script-src" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1:80@evil.example", ""])
def test_another_host_gets_nothing(server: LiveServer, host: str) -> None:
    for method, path in (("GET", "/"), ("GET", "/main.js"), ("POST", "/api/trace"), ("GET", "/api/weights")):
        answer = ask(server, method, f"{path}?token={server.token}", b"{}" if method == "POST" else None, Host=host)
        assert answer.status == 403
        assert list(answer.json) == ["error"]


def test_this_machine_may_be_called_localhost(server: LiveServer) -> None:
    host = f"localhost:{server.server_port}"
    assert ask(server, "GET", f"/?token={server.token}", Host=host).status == 200


def test_another_page_gets_nothing(server: LiveServer) -> None:
    path = f"/api/trace?token={server.token}"
    assert ask(server, "POST", path, b"{}", Origin="http://evil.example").status == 403
    assert ask(server, "POST", path, b"{}", Origin="null").status == 403
    own = f"http://127.0.0.1:{server.server_port}"
    assert ask(server, "POST", path, b"{}", Origin=own).status == 200


@pytest.mark.parametrize("token", ["", "wrong", "é", "{token}x", "{token}"[:-1]])
def test_a_wrong_token_gets_nothing(server: LiveServer, token: str) -> None:
    wrong = quote(token.format(token=server.token) if token.endswith(("}", "x")) else token)
    for method, path in (("GET", "/"), ("POST", "/api/trace"), ("GET", "/api/weights")):
        answer = ask(server, method, f"{path}?token={wrong}", b"{}" if method == "POST" else None)
        assert answer.status == 403
        assert "token" in answer.json["error"]


@pytest.mark.parametrize(
    "path", ["/../live.py", "/%2e%2e/live.py", "/static/main.js", "/etc/passwd", "//etc/passwd", "/main.js/", "/api"]
)
def test_only_the_pages_files_are_served(server: LiveServer, path: str) -> None:
    assert ask(server, "GET", f"{path}?token={server.token}").status == 404
    assert ask(server, "POST", f"{path}?token={server.token}", b"{}").status == 404


def test_what_is_too_large_is_refused(server: LiveServer) -> None:
    path = f"/api/trace?token={server.token}"
    assert ask(server, "POST", path, b" " * 10, Content_Length="70000").status == 413
    assert ask(server, "POST", path, None).status == 411
    assert ask(server, "POST", path, b"{}", Content_Length="-5").status == 411
    assert "at most 2000" in trace(server, text="a" * 2001).json["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 50_000,
        b'{"text": 5}',
        b'{"text": "\\ud800"}',
        b'{"text": "a", "unknown": 1}',
        b'{"settings": {"width": 0}}',
        b'{"settings": {"width": 1000000}}',
        b'{"settings": {"length_penalty": 1e999}}',
        b'{"forced": [[0]]}',
        b'{"forced": [[0, 1000000]]}',
        b'{"forced": [[-1, 5]]}',
        b'{"node": 0}',
        b'{"node": 100000}',
    ],
    ids=repr,
)
def test_nonsense_is_an_error_in_one_line(server: LiveServer, body: bytes) -> None:
    answer = ask(server, "POST", f"/api/trace?token={server.token}", body)
    assert answer.status == 400
    assert answer.json["error"].count("\n") == 0
    assert "Traceback" not in answer.json["error"]


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "\"'</script>&", "שלום", "👩‍👩‍👧", "a\u2028b\u0000"])
def test_hostile_text_comes_back_as_it_was(server: LiveServer, text: str) -> None:
    answer = trace(server, text=text, reference=text)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert (answer.json["run"]["src"], answer.json["run"]["reference"]) == (text, text)


def test_a_trace_is_what_python_gives(server: LiveServer) -> None:
    translator = golden_translator()
    expected = translator.explain(SENTENCE, name="golden").document()
    assert trace(server).json == json.loads(json.dumps(expected))
    assert trace(server, text=SENTENCE).json["run"] == expected["run"]


def test_settings_forced_words_and_nodes_reach_the_search(server: LiveServer) -> None:
    narrow = trace(server, settings={"width": 1, "length_penalty": 0.5}).json
    assert (narrow["run"]["decode"]["width"], narrow["run"]["decode"]["length_penalty"]) == (1, 0.5)
    assert len({node["rank"] for node in narrow["beam"]}) == 2
    forced = trace(server, forced=[[1, 280]]).json
    assert forced["tokens"]["tgt"][2]["id"] == 280
    assert forced["run"]["forced"] == [[1, 280]]
    assert forced["run"]["engine"] is None
    node = next(node["n"] for node in narrow["beam"] if node["state"] == "pruned")
    there = trace(server, settings={"width": 1, "length_penalty": 0.5}, node=node).json
    assert there["run"]["node"] == node
    assert there["tokens"]["tgt"][-1]["id"] == there["beam"][node]["id"]


def test_columns_of_weights_make_the_cells(server: LiveServer) -> None:
    explanation = golden_translator().explain(SENTENCE)
    for name, column, cell in (
        ("dec.0.cross.v", 11, "dec.0.cross.h1.v[2,3]"),
        ("out.logits", 270, "out.logits[1,270]"),
    ):
        found = ask(server, "GET", f"/api/weights?token={server.token}&name={name}&column={column}").json
        source = explanation.trace.entry(explanation.trace.entry(name).inputs[0]).value[0]
        x = source[2 if "cross" in name else 1].tolist()
        value = sum(w * each for w, each in zip(found["weights"], x, strict=True)) + found["bias"]
        assert value == pytest.approx(explanation.cell(cell).result, abs=1e-5)


@pytest.mark.parametrize(
    "query", ["", "name=out.logits", "name=out.logits&column=x", "name=out.logits&column=310", "name=enc.sum&column=0"]
)
def test_columns_that_are_not_there_are_said(server: LiveServer, query: str) -> None:
    answer = ask(server, "GET", f"/api/weights?token={server.token}&{query}")
    assert answer.status == 400
    assert answer.json["error"]


def test_serving_logs_its_url_and_opens_a_browser(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[str] = []
    caplog.set_level("INFO", "glassformer")
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(LiveServer, "serve_forever", lambda server: None)
    for browser in (False, True):
        live.serve_page(golden_translator(), "", "golden", browser=browser)
    assert len(caplog.messages) == 2
    assert len(opened) == 1
    assert opened[0] in caplog.messages[1]
