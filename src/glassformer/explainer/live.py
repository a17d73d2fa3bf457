"""The live page: a server for one user on this machine, who types sentences and sees how they are translated.

It listens on loopback only. Every request must have this machine as its host, which stops DNS rebinding, and requests
for translations must carry the token of the printed URL.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from pydantic import Field

from glassformer.config import Settings
from glassformer.errors import AddressError, ConfigError, GlassformerError, nearest
from glassformer.explainer.explanation import explain
from glassformer.explainer.page import live_index, static_file, static_names
from glassformer.model.trace import look
from glassformer.text.vocab import EOS
from glassformer.translate.translator import Translator

_log = logging.getLogger(__name__)

EXAMPLES: Final = {
    "fr": "Jane visite l'Afrique en septembre.",
    "en": "A man in a blue shirt is standing on a ladder.",
    "de": "Ein Mann in einem blauen Hemd steht auf einer Leiter.",
}

_HOST: Final = "127.0.0.1"
_MOST_BYTES: Final = 65_536  # of a request
_MOST_CHARACTERS: Final = 2_000  # of a sentence
_WIDEST: Final = 32
_TIMEOUT: Final = 30.0  # seconds for a request to arrive
_POLICY: Final = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class _Search(Settings):
    """Settings of the search that the page may change."""

    width: int | None = Field(None, ge=1, le=_WIDEST)
    length_penalty: float | None = Field(None, ge=-10, le=10)


class _Request(Settings):
    """A request of the page for a translation."""

    text: str = Field("", max_length=_MOST_CHARACTERS)
    settings: _Search = _Search()
    forced: tuple[tuple[int, int], ...] = Field((), max_length=256)
    node: int | None = Field(None, ge=1)
    reference: str | None = Field(None, max_length=_MOST_CHARACTERS)


class LiveServer(ThreadingHTTPServer):
    """The page and the model behind it; `serve_forever` answers until `shutdown`."""

    daemon_threads = True

    def __init__(self, translator: Translator, example: str = "", name: str = "", port: int = 0) -> None:
        """Listen on loopback, on `port` or any free one; `example` is translated if a request has no text."""
        super().__init__((_HOST, port), _Handler)
        self.token = secrets.token_urlsafe(24)
        self._translator, self._name = translator, name
        self._example = example or EXAMPLES.get(translator.about.src_lang, "1 2 3")
        self._lock = threading.Lock()  # one computation at a time
        self._columns: Mapping[str, Any] | None = None

    def server_bind(self) -> None:
        """Bind without the DNS look-up of the base class."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = _HOST, int(self.server_address[1])

    @property
    def url(self) -> str:
        """Return the address of the page, with the token."""
        return f"http://{_HOST}:{self.server_port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the accepted values of the Host header."""
        return (f"{_HOST}:{self.server_port}", f"localhost:{self.server_port}")

    def trace(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a text and return the document."""
        asked = _Request.parse(request, "request")
        changes = {name: value for name, value in asked.settings.model_dump().items() if value is not None}
        search = self._translator.search.model_copy(update=changes)
        with self._lock:
            explanation = explain(
                self._translator,
                asked.text or self._example,
                search=search,
                reference=asked.reference,
                forced=dict(asked.forced),
                node=asked.node,
                name=self._name,
            )
            return explanation.document()

    def column(self, name: str, column: int) -> dict[str, Any]:
        """Return the weights of one channel of a linear layer, or of one word's logit."""
        with self._lock:
            if self._columns is None:  # any pass meets every matrix
                model = self._translator.model
                entries = look(model, [EOS], [model.start_id]).entries.values()
                self._columns = {entry.address: entry.constants for entry in entries if "weight" in entry.constants}
        if name not in self._columns:
            raise AddressError(f"{name} is not the output of a linear layer; {nearest(name, self._columns)}")
        weight, bias = self._columns[name]["weight"], self._columns[name]["bias"]
        if not 0 <= column < weight.size(0):
            raise AddressError(f"{name} has no column {column}: columns are 0 to {weight.size(0) - 1}")
        return {
            "name": name,
            "column": column,
            "weights": weight[column].tolist(),
            "bias": 0.0 if bias is None else bias[column].item(),
        }

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve_page(translator: Translator, example: str = "", name: str = "", *, browser: bool = True) -> None:
    """Serve the page until interrupted, and log its URL."""
    with LiveServer(translator, example, name) as server:
        _log.info("%s  (press Ctrl-C to stop)", server.url)
        if browser:
            webbrowser.open(server.url)
        server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    """Answers one HTTP request."""

    server: LiveServer
    server_version, sys_version = "glassformer", ""
    timeout = _TIMEOUT

    def do_GET(self) -> None:
        """Serve the page, its files and columns of weights."""
        url = urlsplit(self.path)
        name = url.path.removeprefix("/")
        if not self._is_allowed(needs_token=name in ("", "api/weights")):
            return
        if name == "":
            self._answer(HTTPStatus.OK, live_index().encode(), "text/html")
        elif name == "api/weights":
            query = parse_qs(url.query)
            self._reply(lambda: self.server.column(_one(query, "name"), _whole(_one(query, "column"))))
        elif name in static_names():
            kind = next((kind for ending, kind in _KINDS.items() if name.endswith(ending)), "application/octet-stream")
            self._answer(HTTPStatus.OK, static_file(name), kind)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "not found")

    def do_POST(self) -> None:
        """Translate a sentence."""
        if not self._is_allowed(needs_token=True):
            return
        length = self.headers.get("Content-Length", "")
        if urlsplit(self.path).path != "/api/trace":
            self._refuse(HTTPStatus.NOT_FOUND, "not found")
        elif not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing or not a number")
        elif int(length) > _MOST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request is larger than {_MOST_BYTES:,} bytes")
        else:
            body = self.rfile.read(int(length))
            self._reply(lambda: self.server.trace(_json_object(body)))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the base class
        """Do not log requests."""

    def _is_allowed(self, needs_token: bool) -> bool:
        """Refuse requests that do not come from this server's own page."""
        origin = self.headers.get("Origin")
        if self.headers.get("Host") not in self.server.hosts:
            self._refuse(HTTPStatus.FORBIDDEN, "wrong host: open the URL that was printed")
            return False
        if origin is not None and origin.removeprefix("http://") not in self.server.hosts:
            self._refuse(HTTPStatus.FORBIDDEN, "requests from other pages are refused")
            return False
        given = parse_qs(urlsplit(self.path).query).get("token", [""])[0]
        if needs_token and not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "the token is missing or wrong: open the URL that was printed")
            return False
        return True

    def _reply(self, compute: Callable[[], dict[str, Any]]) -> None:
        try:
            answer = compute()
        except GlassformerError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
            return
        body = json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()
        self._answer(HTTPStatus.OK, body, "application/json")

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self._answer(status, json.dumps({"error": reason}).encode(), "application/json")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise ConfigError("the request is not JSON") from None
    if not isinstance(content, dict):
        raise ConfigError("the request is not a JSON object")
    return content


def _one(query: Mapping[str, list[str]], name: str) -> str:
    if name not in query:
        raise ConfigError(f"{name} is missing from the request")
    return query[name][0]


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError(f"column must be a whole number, got {text!r}")
    return int(text)
