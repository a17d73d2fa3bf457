"""The explainer's page in a real browser: it shows the model's own numbers, proves them, and anybody can use it."""

from __future__ import annotations

import base64
import json
import math
import random
import re
import statistics
import struct
import threading
import zlib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser

from glassformer.config import SearchConfig
from glassformer.explainer.document import Document
from glassformer.explainer.live import LiveServer
from glassformer.explainer.page import page_html, static_file, static_names
from glassformer.explainer.stations import stations
from tests.explainer.browser import Visitor, launch, needs_browser
from tests.explainer.golden import golden_document, golden_explanation, golden_translator

pytestmark = needs_browser

SLUGS: Final = tuple(stations())
TESTS: Final = Path(__file__).parents[1]
SHELL: Final = 150_000  # bytes of the page without a trace
TRACE: Final = 3_000_000  # bytes of a trace of usual size
SMALL: Final = {"d_model": 256, "d_ff": 1024, "n_encoder_layers": 3, "n_decoder_layers": 3, "n_heads": 4}
HOSTILE: Final = "<script>alert(1)</script> \"a\" '&' <img src=x onerror=y> \u05e9\u05dc \U0001f642"
VARIANTS: Final[list[dict[str, Any]]] = [
    {"norm": "none", "d_ff": 0, "n_heads": 1, "start_token": "eos"},
    {"norm": "pre", "final_norm": True, "positions": "learned", "n_encoder_layers": 2, "activation": "gelu"},
    {"positions": "halves", "activation": "silu", "n_decoder_layers": 2, "scaled_attention": False, "tie": "none"},
    {"positions": "none", "scale_embeddings": False, "attention_bias": False},
    {"positions": "rotary", "n_encoder_layers": 2, "n_decoder_layers": 2},
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch() as browser:
        yield browser


@pytest.fixture(scope="module")
def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Visitor:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, locale="en")
    return Visitor(page, tmp_path_factory.mktemp("page"))


@pytest.fixture
def golden(visitor: Visitor) -> Iterator[Visitor]:
    """Show the golden document, opened anew only where another one was shown."""
    if visitor.shown is not golden_document():
        visitor.open(golden_document())
    yield visitor
    assert not visitor.faults
    assert all(url.startswith("file:") for url in visitor.requests)


def badge(visitor: Visitor) -> str | None:
    return visitor.page.get_attribute("#badge", "data-state")


def evaluate(formula: str) -> float:
    """Compute what is printed."""
    for sign, word in (
        ("\u2212", "-"),
        ("\u00d7", "*"),
        ("^", "**"),
        ("exp", "math.exp"),
        ("sin", "math.sin"),
        ("cos", "math.cos"),
    ):
        formula = formula.replace(sign, word)
    formula = re.sub(r"\u221a(\d+)", r"math.sqrt(\1)", formula).replace("\u221a(", "math.sqrt(")
    formula = formula.replace("\u03a6(", "normal(")
    return float(eval(formula, {"math": math, "max": max, "normal": lambda x: (1 + math.erf(x / math.sqrt(2))) / 2}))


class TestShell:
    """What the files are like."""

    def test_is_small(self) -> None:
        empty: Any = {}
        assert len(page_html(empty).encode()) <= SHELL

    def test_a_trace_is_small(self) -> None:
        """Fifteen tokens on each side, preset `small`."""
        search = SearchConfig(width=5, min_length=14, max_length=15)
        document = golden_translator(**SMALL).explain("le chat dort et le chien mange", search=search).document()
        assert len(document["steps"]) == 15
        assert len(json.dumps(document)) < TRACE

    def test_modules_can_be_joined(self) -> None:
        code = [static_file(name).decode() for name in sorted(static_names()) if name.endswith(".js")]
        names = [
            name
            for text in code
            for name in re.findall(r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", text, re.M)
        ]
        assert len(names) == len(set(names))
        assert all(
            line.count("`") % 2 == 0 for text in code for line in text.splitlines()
        )  # so that lines can be trimmed
        assert not any(re.search(r"\binnerHTML|\bdocument\.write|insertAdjacentHTML", text) for text in code)


class TestStations:
    """Every station, on its own and in turn."""

    def test_opens_each_by_its_address(self, golden: Visitor) -> None:
        for number, slug in enumerate(SLUGS):
            for depth in (1, 2, 3):
                golden.go(f"{slug}&depth={depth}")
                assert golden.page.text_content("#number") == str(number)
                assert golden.page.locator("#station > *").count()
        assert badge(golden) == "good"

    def test_opens_each_by_its_number_as_older_pages_did(self, golden: Visitor) -> None:
        for number, slug in enumerate(SLUGS):
            golden.go(f"station={number}&depth=2")
            assert golden.page.text_content("#number") == str(number)
            assert golden.page.get_attribute("#depth2", "aria-pressed") == "true"
            assert golden.page.input_value("#jump") == slug
        golden.go("enc.0.self.h1.q[1,2]&station=5")
        assert golden.page.input_value("#jump") == "scores"

    def test_writes_its_slug_into_the_url(self, golden: Visitor) -> None:
        golden.go("scores")
        golden.page.evaluate("() => document.activeElement.blur()")
        golden.page.keyboard.press("n")
        golden.page.keyboard.press(".")
        assert golden.page.evaluate("() => location.hash") == "#scale&head=1"
        golden.page.click('#map a[data-station="cross-attention"]')
        assert golden.page.evaluate("() => location.hash") == "#cross-attention&head=1"
        golden.go("enc.0.self.h1.q[1,2]&station=scores")
        assert golden.page.input_value("#jump") == "scores"
        golden.page.keyboard.press("2")
        assert golden.page.evaluate("() => location.hash") == "#enc.0.self.h1.q[1,2]&station=scores&depth=2"

    def test_every_tensor_is_at_home_in_one(self, golden: Visitor) -> None:
        for name in golden_explanation().trace:
            golden.go("overview")
            golden.go(name)
            assert golden.page.input_value("#jump") != "overview", name

    @pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: "-".join(map(str, changes.values())))
    def test_shows_other_models(self, visitor: Visitor, changes: dict[str, Any]) -> None:
        visitor.open(golden_translator(**changes).explain("Le chat dort.").document())
        for number, slug in enumerate(SLUGS):
            visitor.go(f"{slug}&depth=3")
            assert visitor.page.text_content("#number") == str(number)
        assert badge(visitor) == "good"
        assert not visitor.faults

    def test_switches_at_once(self, golden: Visitor) -> None:
        times: list[float] = golden.page.evaluate(
            """async () => { const times = [];
            for (const stop of document.querySelectorAll('#map a')) {
              const start = performance.now();
              stop.click();
              await new Promise(requestAnimationFrame);
              times.push(performance.now() - start);
            } return times; }"""
        )
        assert len(times) == len(SLUGS)
        assert statistics.median(times) < 100

    def test_keeps_its_layout_while_stepping(self, golden: Visitor) -> None:
        golden.go("cross-attention&t=0")
        tops = []
        for _ in golden_document()["steps"]:
            tops.append(golden.page.evaluate("() => document.querySelector('#station').getBoundingClientRect().top"))
            golden.page.keyboard.press("ArrowRight")
        assert len(set(tops)) == 1


class TestRotary:
    """Positions that rotate queries and keys."""

    def test_are_recomputed_and_explained(self, visitor: Visitor) -> None:
        explanation = golden_translator(positions="rotary").explain("Le chat dort.")
        document = explanation.document()
        visitor.open(document, "positions")
        assert badge(visitor) == "good"
        assert visitor.page.text_content("#title") == "Rotary positions"
        assert not visitor.page.locator("#head-more").is_disabled()
        for address in ("enc.0.self.h1.rotated_q[3,4]", "enc.0.self.h0.rotated_k[2,1]", "dec.0.self.h1.rotated_k[1,6]"):
            visitor.go(address)
            left, _, right = str(visitor.page.text_content("#station .equation.big")).rpartition("=")
            assert evaluate(left) == pytest.approx(evaluate(right), abs=1e-3)
            assert evaluate(right) == pytest.approx(explanation.cell(address).result, abs=1e-4)
        visitor.go("scores")
        sources = {
            number["address"].partition("[")[0] for number in visitor.numbers(".bars") if "*" in number["address"]
        }
        assert sources == {"enc.0.self.h0.rotated_q"}
        assert not visitor.faults
        visitor.open(_corrupt(document, "enc.0.self.rotated_k"))
        assert badge(visitor) == "bad"

    def test_other_positions_need_no_head(self, golden: Visitor) -> None:
        golden.go("positions")
        assert golden.page.locator("#head-more").is_disabled()
        assert golden.page.text_content("#title") == "Positions"


class TestOldTraces:
    """Files of older versions."""

    def test_open(self, visitor: Visitor) -> None:
        visitor.open(json.loads((TESTS / "v0_1/trace.json").read_text(encoding="utf-8")))
        for number, slug in enumerate(SLUGS):
            visitor.go(f"{slug}&depth=3")
            assert visitor.page.text_content("#number") == str(number)
        assert badge(visitor) == "good"
        assert not visitor.faults


class TestNumbers:
    """The model's own numbers, to the last digit that matters."""

    def test_are_those_of_python(self, golden: Visitor) -> None:
        dice, explanation = random.Random(6), golden_explanation()
        entries = list(explanation.trace.entries.values())
        for entry in dice.sample(entries, 30):
            place = [dice.randrange(size) for size in entry.shape]
            head = f".h{place.pop(0)}" if entry.axes[0] == "head" else ""
            stem, _, last = entry.address.rpartition(".")
            address = f"{stem}{head}.{last}[{','.join(map(str, place))}]"
            golden.go(address)
            shown = golden.page.get_attribute("#explained", "data-value")
            assert shown is not None
            expected = float(explanation.tensor(address))
            assert float(shown.replace("Infinity", "inf")) == pytest.approx(expected, abs=1e-6), address

    def test_stand_in_pictures_too(self, golden: Visitor) -> None:
        explanation, seen = golden_explanation(), 0
        for at in (
            "softmax&depth=2",
            "encoder-add-norm-1&depth=2",
            "masked-self-attention&t=2&depth=2",
            "linear",
            "embedding&depth=2",
        ):
            golden.go(at)
            for number in golden.numbers():
                if re.fullmatch(r"(enc|dec|out)[\w.]+\[[\d,]+\]", number["address"]) and number["value"] is not None:
                    assert number["value"] == pytest.approx(float(explanation.tensor(number["address"])), abs=1e-6)
                    seen += 1
        assert seen > 200

    def test_all_have_an_address(self, golden: Visitor) -> None:
        for slug in SLUGS:
            golden.go(f"{slug}&depth=3")
            assert all(number["address"] for number in golden.numbers()), slug
            assert not golden.page.locator("#station .num:not([data-value])").count()

    def test_follow_from_what_is_printed(self, golden: Visitor) -> None:
        t, seen = 1, set[str]()
        where = [
            "enc.position[2,3]",
            "enc.embedding[1,2]",
            "enc.sum[1,2]",
            "enc.0.self.h1.scores[1,2]",
            "enc.0.self.h1.scaled[1,2]",
        ]
        where += [
            "enc.0.self.h0.weights[1,2]",
            "enc.0.self.h0.context[1,2]",
            "enc.0.norm1.mean[1,0]",
            "enc.0.norm1.variance[1,0]",
        ]
        where += [
            "enc.0.norm1.normalised[1,2]",
            "enc.0.norm1.output[1,2]",
            "enc.0.ff.active[1,2]",
            f"out.log_probs[{t},3]",
        ]
        where += [
            f"out.probabilities[{t},3]",
            f"choose&t={t}",
            f"beam-tree&t={t}",
            f"dec.0.cross.h1.context[{t},3]",
        ]
        for address in where:
            golden.go(address)
            for text in golden.page.locator("#station .equation").all_text_contents():
                if "\u1d40" in text:  # the projection's two sides, which have no weights to compute with
                    continue
                left, _, right = text.rpartition("=")
                result = evaluate(right.strip())
                # every printed number is right to half a unit of its last digit
                slack = sum(_half_unit(number) for number in re.findall(r"\d+\.\d+(?:e[\u2212-]\d+)?", text))
                assert evaluate(left.strip()) == pytest.approx(result, abs=20 * slack + 1e-4 * abs(result)), (
                    address,
                    text,
                )
                seen.add(text)
        assert len(seen) > 40

    def test_can_be_followed_to_the_embedding(self, golden: Visitor) -> None:
        t = len(golden_document()["steps"]) - 1
        golden.go(f"out.probabilities[{t},3]")
        trail = [f"out.probabilities[{t},3]"]
        while golden.page.locator(".follow").count() and len(trail) < 60:
            golden.page.click(".follow")
            trail.append(str(golden.page.text_content(".arithmetic h3 code")))
        assert trail[-1].startswith(("dec.ids", "enc.ids", "dec.position", "enc.position"))
        assert len(set(trail)) == len(trail) > 8
        golden.page.keyboard.press("Backspace")
        assert golden.page.text_content(".arithmetic h3 code") == trail[-2]


def _half_unit(number: str) -> float:
    digits, _, power = number.replace("\u2212", "-").partition("e")
    return 0.5 * 10.0 ** -len(digits.partition(".")[2]) * 10.0 ** int(power or 0)


class TestCheck:
    """The page that checks itself."""

    def test_finds_nothing_wrong(self, golden: Visitor) -> None:
        golden.page.click("#badge")
        assert "recomputed from its inputs" in str(golden.page.text_content("#checks"))
        golden.page.keyboard.press("Escape")
        assert badge(golden) == "good"

    @pytest.mark.parametrize(
        "name",
        [
            "enc.row",
            "enc.position",
            "enc.0.self.q",
            "enc.0.self.scores",
            "enc.0.self.scaled",
            "enc.0.self.weights",
            "dec.0.self.masked",
            "enc.0.self.context",
            "enc.0.self.output",
            "enc.0.add1.sum",
            "enc.0.norm1.variance",
            "dec.0.norm3.output",
            "enc.0.ff.active",
            "dec.0.ff.hidden",
            "out.logits",
        ],
    )
    def test_finds_one_wrong_float(self, visitor: Visitor, name: str) -> None:
        visitor.open(_corrupt(golden_document(), name))
        assert badge(visitor) == "bad"

    def test_takes_weights_where_they_are(self, visitor: Visitor) -> None:
        document = golden_explanation().document(with_weights=["enc.0.self.q"])
        visitor.open(document, "enc.0.self.h1.q[1,2]")
        assert badge(visitor) == "good"
        texts = visitor.page.locator("#station .equation").all_text_contents()
        left, _, right = texts[-1].rpartition("=")
        assert evaluate(left) == pytest.approx(evaluate(right), abs=1e-3)


def _corrupt(document: Document, name: str) -> Document:
    """Change one float of a tensor by a hundredth of its standard deviation."""
    changed = deepcopy(document)
    tensor = next(tensor for tensor in changed["tensors"] if tensor["name"] == name)
    blob = bytearray(zlib.decompress(base64.b64decode(changed["blob"]["data"]), wbits=-15))
    size = math.prod(tensor["shape"])
    place = next(p for p in range(size // 2, size) if math.isfinite(_float(blob, tensor["off"] + p)))
    at = 4 * (tensor["off"] + place)
    struct.pack_into("<f", blob, at, _float(blob, tensor["off"] + place) + 1e-2 * tensor["stats"][3])
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    changed["blob"]["data"] = base64.b64encode(packer.compress(bytes(blob)) + packer.flush()).decode()
    return changed


def _float(blob: bytearray, place: int) -> float:
    value: float = struct.unpack_from("<f", blob, 4 * place)[0]
    return value


class TestReaders:
    """Keyboard, screen reader, small screens."""

    def test_tour_by_keyboard(self, golden: Visitor) -> None:
        page, press = golden.page, golden.page.keyboard.press
        golden.go("overview")
        page.evaluate("() => document.activeElement.blur()")
        for station in range(1, len(SLUGS)):
            press("n")
            assert page.text_content("#number") == str(station)
        for t in range(1, len(golden_document()["steps"])):
            press("ArrowRight")
            assert str(page.text_content("#count")).startswith(f"t = {t} ")
        golden.go("softmax")
        page.evaluate("() => document.activeElement.blur()")
        press(".")
        assert str(page.text_content("#head")).startswith("1")
        for _ in range(60):
            press("Tab")
            if page.evaluate("() => document.activeElement.getAttribute('role')") == "gridcell":
                break
        press("ArrowDown")
        press("End")
        here = page.evaluate("() => document.activeElement.dataset.address")
        assert here == f"enc.0.self.h1.weights[1,{len(golden_document()['tokens']['src']) - 1}]"
        press("Enter")
        assert page.text_content(".arithmetic h3 code") == here
        press("Escape")
        assert not page.locator(".arithmetic").count()
        press("2")
        page.locator("#station [role=gridcell][tabindex='0']").first.focus()
        press("ArrowRight")
        assert page.evaluate("() => document.activeElement.dataset.at") is not None

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_axe_finds_nothing_serious(self, golden: Visitor, scheme: Any) -> None:
        golden.page.emulate_media(color_scheme=scheme)
        stations = ["enc.0.self.h0.scores[1,1]", "cross-attention&t=2"]
        stations += ["pieces", "softmax&depth=2", "vocabulary-softmax", "beam-tree&t=1"] if scheme == "light" else []
        for at in stations:
            golden.go(at)
            found = Axe().run(golden.page).response["violations"]
            serious = [
                (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
            ]
            assert not serious, (at, serious)
        golden.page.emulate_media(color_scheme="light")

    @pytest.mark.parametrize(("width", "height"), [(360, 740), (1280, 800), (640, 400)], ids=["phone", "desk", "200%"])
    def test_never_scrolls_sideways(self, golden: Visitor, width: int, height: int) -> None:
        golden.page.set_viewport_size({"width": width, "height": height})
        golden.go("enc.ids[0]")
        depths = (1, 2, 3) if width == 360 else (1,)
        over = golden.overflow([f"{slug}&depth={depth}" for slug in SLUGS for depth in depths])
        assert max(over.values()) <= 0, over
        golden.page.set_viewport_size({"width": 1280, "height": 800})

    def test_speaks_french(self, golden: Visitor) -> None:
        golden.page.select_option("#language", "fr")
        golden.go("weighted-values")
        assert golden.page.text_content("#title") == "Valeurs pond\u00e9r\u00e9es"
        assert golden.page.get_attribute("html", "lang") == "fr"
        assert golden.page.get_attribute("#source button >> nth=0", "lang") == "fr"
        golden.page.select_option("#language", "en")

    def test_temperature_and_top_k_act_at_once(self, golden: Visitor) -> None:
        golden.go("vocabulary-softmax&t=1")
        before = golden.numbers(".chances")
        golden.page.locator("#temperature").fill("0.5")
        sharper = golden.numbers(".chances")
        assert sharper[0]["value"] > before[0]["value"]
        golden.page.locator("#top-k").fill("1")
        assert golden.numbers(".chances")[0]["value"] == 1
        golden.page.locator("#top-k").fill("0")
        golden.page.locator("#temperature").fill("1")
        assert golden.numbers(".chances") == before


class TestLongSentence:
    """A model of the preset `small` and forty tokens."""

    def test_is_soon_ready(self, visitor: Visitor) -> None:
        search = SearchConfig(width=2, min_length=40, max_length=41)
        text = " ".join(["le chat dort et le chien mange"] * 3)
        document = golden_translator(**SMALL).explain(text, search=search).document()
        assert len(document["steps"]) >= 40
        assert visitor.arrive(document) < 1500
        visitor.page.wait_for_selector("body.checked")
        assert badge(visitor) == "good"


class TestNotebook:
    """What Jupyter shows of an explanation: the page, in a frame of its own."""

    def test_is_the_page(self, visitor: Visitor, tmp_path: Path) -> None:
        explanation = golden_translator().explain("Le chat dort.")
        notebook = tmp_path / "cell.html"
        notebook.write_text(f"<!doctype html><meta charset=utf-8><p>In [1]:</p>{explanation._repr_html_()}", "utf-8")
        visitor.faults.clear()
        visitor.page.goto(notebook.as_uri())
        frame = visitor.page.frame_locator("iframe")
        frame.locator("body.checked").wait_for(timeout=20_000)
        assert frame.locator("#badge").get_attribute("data-state") == "good"
        for slug in ("pieces", "softmax", "beam-tree"):  # by a click, as the frame's address stays what it is
            frame.locator("#jump").select_option(slug)
            assert frame.locator("#number").text_content() == str(stations()[slug].number)
        assert "dort" in str(frame.locator("header").text_content())
        assert not visitor.faults


class TestHostileText:
    """Text is text."""

    def test_exported(self, visitor: Visitor) -> None:
        document = golden_translator().explain(HOSTILE, reference=HOSTILE).document()
        document["vocabulary"][5] = "<b>bold</b>"
        visitor.open(document)
        assert visitor.page.text_content(".pair span") == HOSTILE
        for slug in SLUGS:
            visitor.go(slug)
        assert visitor.page.text_content(".facts dd span") == HOSTILE
        assert not visitor.page.locator("#station img, #station script, #station b b, header img").count()
        assert not visitor.faults

    def test_live(self, browser: Browser, tmp_path: Path) -> None:
        with LiveServer(golden_translator(), "Le chat dort.") as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            reader = Visitor(browser.new_page(locale="en"), tmp_path)
            page = reader.page
            page.goto(server.url)
            page.wait_for_selector("body.checked")
            page.fill("#sentence", HOSTILE)
            page.press("#sentence", "Enter")
            page.wait_for_function("text => document.querySelector('.pair span')?.textContent === text", arg=HOSTILE)

            page.fill("#sentence", "Le chat dort.")
            page.press("#sentence", "Enter")
            page.wait_for_function("() => document.querySelector('.pair span')?.textContent === 'Le chat dort.'")
            reader.go("vocabulary-softmax")
            page.click("#force")
            other = page.locator(".options button:not(.chosen)").first
            word = str(other.text_content())
            other.click()
            page.wait_for_selector(".chip.forced")
            assert page.text_content(".chip.forced") == word.removeprefix("\u2581")

            reader.go("enc.0.self.h1.q[1,2]")
            page.wait_for_selector("#station .equation.big")
            left, _, right = str(page.text_content("#station .equation.big")).rpartition("=")
            assert evaluate(left) == pytest.approx(evaluate(right), abs=1e-3)
            assert not reader.faults
            assert all(url.startswith(f"http://127.0.0.1:{server.server_port}/") for url in reader.requests)
            page.close()
            server.shutdown()
