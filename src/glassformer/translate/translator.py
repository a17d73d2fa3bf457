"""The Translator: text in, text out, and all that can be asked about how it came about.

A text is cut into sentences and the white space between them; sentences are translated by an engine, in windows, and
put back where they stood. Whatever a sentence needs a second search for (it went in circles, it was cut off, it says a
forbidden word) happens here, so that all engines behave alike.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import compress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from glassformer.config import SearchConfig
from glassformer.errors import ConfigError
from glassformer.search.mbr import agreement
from glassformer.store.folder import About, read_config
from glassformer.store.registry import DEFAULT_MODEL, find_model
from glassformer.text.sentences import cut_sentence, split_sentences
from glassformer.text.tokenizer import Span, Tokenizers
from glassformer.translate.alignment import word_alignment, word_pieces
from glassformer.translate.engines.engine import Engine, Found, Request, Say, Source, aside
from glassformer.translate.loading import load_engines, load_tokenizers
from glassformer.translate.loops import NGRAM, is_loop
from glassformer.translate.results import Hypothesis, Piece, Sentence, Token, Translation
from glassformer.translate.words import continuing_tokens, whole_words

if TYPE_CHECKING:
    from glassformer.explainer.explanation import Explanation
    from glassformer.model.transformer import Transformer


DEFAULT_SEARCH: Final = SearchConfig(width=5)

_WORD: Final = re.compile(r"\S+")  # as `word_pieces` counts them
_SHOUTED: Final = re.compile(r"[^\W\d_]{2}.*\s.*[^\W\d_]{2}", re.DOTALL)  # two words: one alone may be a name
_WINDOW: Final = 4096  # texts that are translated together: memory does not grow with a file
_MOST_CHARACTERS: Final = 1 << 20  # of a window, but for the last text of it
_SHARES: Final = 4  # of a window that an engine works at while others are cut into tokens or put together
_LEAST_SHARE: Final = 64  # texts
_SLACK: Final = 1.25  # parts of a sentence that is too long are not all of one length
_MOST_ROUNDS: Final = 10  # searches for a translation without the forbidden words, which can be spelt in many ways


class Options(TypedDict, total=False):
    """How texts are translated."""

    search: SearchConfig | None  # instead of the model's own
    prefix: str  # each text begins with it
    suppress: Sequence[str]  # words that do not come, as they stand or with a capital
    require: Sequence[str]  # words that come as they stand; a text is not cut into sentences then


class Asked(Options, total=False):
    """What is told of a translation besides its text."""

    n_best: int  # hypotheses; widens the search if need be
    token_probabilities: bool
    alignment: bool  # of words
    attention: bool


class _Wish(NamedTuple):
    """What a call asks for, ready for an engine."""

    request: Request
    prefix: tuple[int, ...]
    prefix_text: str
    suppressed: re.Pattern[str] | None
    required: tuple[str, ...]
    mbr: bool
    n_best: int
    tokens: bool
    alignment: bool
    attention: bool


class _Part(NamedTuple):
    """A sentence, or what one that is too long was cut into."""

    text: str
    is_first: bool  # of its text: it has the prefix and the required words


class _Solved(NamedTuple):
    """A part and what was found for it; nothing was looked for if it is white space."""

    text: str
    source: Source
    found: list[Found]
    looped: bool


class Translator:
    """A model that translates texts."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        about: About | None = None,
        max_positions: int = 1024,
        search: SearchConfig | None = None,
        fallback: Callable[[], Engine] | None = None,
        say: Say | None = None,
        split: bool = True,
    ) -> None:
        """Put together what `load` reads from a folder; `fallback` makes the engine for what the first refuses."""
        self.split = split
        self.tokenizers = tokenizers
        self.about = about or About()
        self.search = search or self.about.search or DEFAULT_SEARCH
        self.max_positions = max_positions
        self._engine = engine
        self._make_fallback = fallback
        self._fallback: Engine | None = None
        self._say = say or (lambda word: None)
        self._said: set[str] = set()
        self._process: int | None = os.getpid()

    @classmethod
    def load(
        cls,
        model: str | Path | Sequence[str | Path] = DEFAULT_MODEL,
        engine: str = "auto",
        search: SearchConfig | None = None,
        threads: int = 0,
        device: str = "cpu",
        say: Say | None = None,
        split: bool = True,
        compute: str = "auto",
    ) -> Self:
        """Read a model by its folder or name, or several that decide together; `say` hears when an engine cannot do it.

        Texts are cut into sentences unless `split` says that each is to be taken as one. `compute` is the kind of
        numbers in CTranslate2: float32, int8, .., or auto, the fastest that is accurate.
        """
        folders = [find_model(name) for name in ([model] if isinstance(model, str | Path) else model)]
        if not folders:
            raise ConfigError("no model to translate with: name a model folder")
        configs = [read_config(folder) for folder in folders]
        tokenizers, about = load_tokenizers(folders, configs), configs[0].about
        first, fallback = load_engines(engine, folders, about, threads, device, compute, say)
        positions = min(config.model.max_positions for config in configs)  # what an export has tables for, too
        return cls(first, tokenizers, about, positions, search, fallback, say, split)

    @property
    def engine(self) -> str:
        """The name of the engine that translates unless it cannot."""
        return self._engine.name

    @overload
    def translate(self, texts: str, **settings: Unpack[Options]) -> str: ...

    @overload
    def translate(self, texts: list[str], **settings: Unpack[Options]) -> list[str]: ...

    @overload
    def translate(self, texts: Iterator[str], **settings: Unpack[Options]) -> Iterator[str]: ...

    def translate(
        self, texts: str | list[str] | Iterator[str], **settings: Unpack[Options]
    ) -> str | list[str] | Iterator[str]:
        """Translate a text, a list of texts, or a stream of them as it comes; `Options` says what can be set."""
        wish = self._wish(**settings, scores=False)
        _check_texts(texts)
        if isinstance(texts, str):
            return self._translate([texts], wish)[0].text
        found = (translation.text for translation in self._stream(texts, wish))
        return list(found) if isinstance(texts, list) else found

    @overload
    def results(self, texts: str, **asked: Unpack[Asked]) -> Translation: ...

    @overload
    def results(self, texts: list[str], **asked: Unpack[Asked]) -> list[Translation]: ...

    @overload
    def results(self, texts: Iterator[str], **asked: Unpack[Asked]) -> Iterator[Translation]: ...

    def results(
        self, texts: str | list[str] | Iterator[str], **asked: Unpack[Asked]
    ) -> Translation | list[Translation] | Iterator[Translation]:
        """Translate, and tell what is `Asked` for besides the text; order is kept."""
        wish = self._wish(**asked)
        _check_texts(texts)
        if isinstance(texts, str):
            return self._translate([texts], wish)[0]
        found = self._stream(texts, wish)
        return list(found) if isinstance(texts, list) else found

    @property
    def model(self) -> Transformer:
        """Our own model, whichever engine translates with its weights."""
        from glassformer.translate.engines.torch import TorchEngine

        if not isinstance(self._engine, TorchEngine) and self._fallback is None and self._make_fallback is not None:
            self._fallback = self._make_fallback()
        for engine in (self._engine, self._fallback):
            if isinstance(engine, TorchEngine) and len(engine.models) == 1:
                return engine.models[0]
        raise ConfigError("one can look into one model only: name one model folder")

    def explain(
        self,
        text: str,
        *,
        search: SearchConfig | None = None,
        reference: str | None = None,
        forced: Mapping[int, int] | None = None,
        node: int | None = None,
        name: str = "",
    ) -> Explanation:
        """Translate a sentence with our own model and keep every number on the way to it.

        `forced` are tokens that must come, by step; `node` is a prefix of the beam to look at instead of the winner.
        """
        from glassformer.explainer.document import EngineText
        from glassformer.explainer.explanation import explain

        search = search or self.search
        is_usual = not forced and node is None
        engine = EngineText(self.engine_for(search), self.translate(text, search=search)) if is_usual else None
        return explain(
            self.model,
            self.tokenizers,
            self._read(text),
            search,
            about=self.about,
            name=name,
            reference=reference,
            forced=forced,
            node=node,
            engine=engine,
        )

    def engine_for(self, search: SearchConfig) -> str:
        """Name the engine that a search goes to."""
        return self._engine_for(self._wish(search).request).name

    def close(self) -> None:
        """Let go of threads and memory."""
        self._process = None
        self._engine.close()
        if self._fallback is not None:
            self._fallback.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wish(
        self,
        search: SearchConfig | None = None,
        prefix: str = "",
        suppress: Sequence[str] = (),
        require: Sequence[str] = (),
        n_best: int = 1,
        token_probabilities: bool = False,
        alignment: bool = False,
        attention: bool = False,
        scores: bool = True,
    ) -> _Wish:
        """Check what a call asks for, and write it for an engine."""
        for word in (*suppress, *require):
            if not word.strip():
                raise ConfigError(f"suppress and require take words, and {word!r} is none")
        unwanted = [variant for word in suppress for variant in _variants(word.strip())]
        pattern = whole_words(unwanted) if unwanted else None
        for word in require:
            if pattern and (held := pattern.search(word)):
                raise ConfigError(f"{word!r} is required, and {held[0]!r} in it is suppressed; one of both")
        if n_best < 1:
            raise ConfigError(f"n_best={n_best}: at least the best one is given")
        encode = self.tokenizers.tgt.encode
        forced = tuple(encode(prefix.rstrip())) if prefix else ()
        settings = self._within_limits(search or self.search, n_best, len(forced))
        return _Wish(
            Request(
                settings.model_copy(update={"method": "sample"}) if settings.method == "mbr" else settings,
                tuple(tuple(encode(word)) for word in unwanted),
                tuple(tuple(encode(word.strip())) for word in require),
                continuing_tokens(self.tokenizers.tgt) if require else frozenset(),
                settings.width if settings.method == "mbr" else n_best,
                token_probabilities,
                alignment or attention,
                scores,
            ),
            forced,
            prefix.rstrip(),
            pattern,
            tuple(word.strip() for word in require),
            settings.method == "mbr",
            n_best,
            token_probabilities,
            alignment,
            attention,
        )

    def _within_limits(self, search: SearchConfig, n_best: int, n_forced: int) -> SearchConfig:
        """Fit a search to the model's longest sequence and to the hypotheses that are asked for."""
        changes = {
            "max_length": min(search.max_length, self.max_positions),
            "width": math.ceil(max(search.width, n_best) / search.groups) * search.groups,
        }
        if n_forced >= changes["max_length"]:
            raise ConfigError(f"the prefix has {n_forced} tokens, max_length={changes['max_length']} leaves no room")
        return SearchConfig.parse({**search.model_dump(), **changes}, "search")

    def _stream(self, texts: Iterable[str], wish: _Wish) -> Iterator[Translation]:
        window: list[str] = []
        size = 0
        for text in texts:
            window.append(text)
            size += len(text)
            if len(window) == _WINDOW or size > _MOST_CHARACTERS:
                yield from self._window(window, wish)
                window, size = [], 0
        yield from self._window(window, wish)

    def _window(self, texts: list[str], wish: _Wish) -> list[Translation]:
        """Translate a window of texts, in shares of similar length, so that the engine need not wait for us."""
        n_shares = min(_SHARES, len(texts) // _LEAST_SHARE)
        if n_shares < 2 or not self._engine.is_shared or self._engine.refuses(_without_loops(wish.request)):
            return self._translate(texts, wish)
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        size = -(-len(order) // n_shares)
        shares = [order[first : first + size] for first in range(0, len(order), size)]
        with ThreadPoolExecutor(n_shares, "share") as pool:
            found = pool.map(lambda numbers: self._translate([texts[i] for i in numbers], wish), shares)
            answers = {
                i: each
                for numbers, some in zip(shares, found, strict=True)
                for i, each in zip(numbers, some, strict=True)
            }
        return [answers[i] for i in range(len(texts))]

    def _translate(self, texts: list[str], wish: _Wish) -> list[Translation]:
        """Translate texts together."""
        whole = bool(wish.request.required) or not self.split
        spans = [self._spans(text, whole) for text in texts]
        parts: list[_Part] = []
        for of_text in spans:
            sentences = [span for span in of_text if not span.isspace()]
            parts += [_Part(sentence, number == 0) for number, sentence in enumerate(sentences)]
        solved = iter(self._solve(parts, wish))
        return [
            self._put_together(text, _interleave(of_text, solved), wish)
            for text, of_text in zip(texts, spans, strict=True)
        ]

    def _spans(self, text: str, whole: bool) -> list[str]:
        if not whole:
            return split_sentences(text, self.about.src_lang)
        core = text.strip()
        start = text.find(core)
        return [span for span in (text[:start], core, text[start + len(core) :]) if span]

    def _solve(self, parts: Sequence[_Part], wish: _Wish) -> list[list[_Solved]]:
        """Translate parts, each of which comes back as one or, if it was too long, as several and their gaps."""
        limit = max(wish.request.search.max_length - 1, 1)  # a translation is about as long as its source
        encoded = self.tokenizers.src.encode_batch([self._read(part.text) for part in parts])
        sources = [
            Source(tokens, wish.prefix if part.is_first else ()) for tokens, part in zip(encoded, parts, strict=True)
        ]
        solved: list[list[_Solved]] = [[] for _ in parts]
        fits = [i for i, source in enumerate(sources) if len(source.tokens) <= limit or len(parts[i].text) == 1]
        # One character that is longer than the model's longest sequence cannot be cut as a text.
        short = [sources[i]._replace(tokens=sources[i].tokens[: self.max_positions - 1]) for i in fits]
        for i, (found, looped) in zip(fits, self._search(short, [parts[i].is_first for i in fits], wish), strict=True):
            is_cut_off = not (found[0].ended or looped) and 2 * len(sources[i].tokens) > limit
            if not is_cut_off or len(parts[i].text) == 1:
                solved[i] = [_Solved(parts[i].text, sources[i], found, looped)]

        too_long = [i for i, of_part in enumerate(solved) if not of_part]
        if too_long:
            smaller = [self._cut(parts[i], max(2, math.ceil(_SLACK * len(encoded[i]) / limit))) for i in too_long]
            answers = iter(self._solve([part for some in smaller for part in some if not part.text.isspace()], wish))
            for i, some in zip(too_long, smaller, strict=True):
                solved[i] = _interleave([part.text for part in some], answers)
        return solved

    def _read(self, text: str) -> str:
        """Give a sentence as the model reads it, character by character."""
        if self.about.lower_capitals and text.isupper() and _SHOUTED.search(text) and len(text.lower()) == len(text):
            return text.lower()
        return text

    def _cut(self, part: _Part, n_parts: int) -> list[_Part]:
        spans: list[str] = []
        for span in cut_sentence(part.text, n_parts):
            spans += self._spans(span, whole=True)
        return [_Part(span, part.is_first and number == 0) for number, span in enumerate(spans)]

    def _search(
        self, sources: Sequence[Source], is_first: Sequence[bool], wish: _Wish
    ) -> list[tuple[list[Found], bool]]:
        """Search for each source, and once more where the first search went astray."""
        if wish.request.required and not all(is_first):
            others = wish._replace(request=wish.request._replace(required=()), required=())
            answers: dict[int, tuple[list[Found], bool]] = {}
            for of_kind, first in ((wish, True), (others, False)):
                numbers = [i for i, is_such in enumerate(is_first) if is_such is first]
                some = self._search([sources[i] for i in numbers], [True] * len(numbers), of_kind)
                answers.update(zip(numbers, some, strict=True))
            return [answers[i] for i in range(len(sources))]
        found = self._found(sources, wish.request, wish)
        loops = [i for i, of_one in enumerate(found) if is_loop(of_one[0].tokens, sources[i].tokens)]
        if loops:
            request = _without_loops(wish.request)
            if self._engine.refuses(request):
                self._say_once("a translation went in circles: such are searched again, with no_repeat_ngram")
            again = self._found([sources[i] for i in loops], request, wish)
            for i, of_one in zip(loops, again, strict=True):
                found[i] = of_one
        looped = set(loops)
        return [(of_one, i in looped) for i, of_one in enumerate(found)]

    def _found(self, sources: Sequence[Source], request: Request, wish: _Wish) -> list[list[Found]]:
        """Search for each source, again while a suppressed word comes, and rank what was drawn."""
        found = self._run(sources, request)
        pattern = wish.suppressed
        for _ in range(_MOST_ROUNDS if pattern else 0):
            spelt = {i: self._spellings(of_one, wish) for i, of_one in enumerate(found)}
            numbers = [i for i, spellings in spelt.items() if spellings]
            new = {spelling for i in numbers for spelling in spelt[i]}.difference(request.suppressed)
            if not new:
                break
            request = request._replace(suppressed=(*request.suppressed, *sorted(new)))
            for i, of_one in zip(numbers, self._run([sources[i] for i in numbers], request), strict=True):
                found[i] = of_one
        if pattern and any(self._spellings(of_one, wish) for of_one in found):
            self._say_once("a suppressed word comes all the same: the model finds ever new ways to spell it")
        for word in wish.required:
            is_word = whole_words([word])
            if not all(is_word.search(self.tokenizers.tgt.decode(of_one[0].tokens)) for of_one in found):
                self._say_once(f"the required word {word} does not come everywhere: the search found no place for it")
        return [self._rank(of_one)[: wish.n_best] for of_one in found] if wish.mbr else found

    def _spellings(self, found: Sequence[Found], wish: _Wish) -> set[tuple[int, ...]]:
        """Give the token sequences that suppressed words came as, the forced prefix left alone."""
        assert wish.suppressed is not None
        spellings: set[tuple[int, ...]] = set()
        for hypothesis in found:
            text = self.tokenizers.tgt.decode(hypothesis.tokens)
            forced = len(wish.prefix_text) if text.startswith(wish.prefix_text) else 0
            matches = [match for match in wish.suppressed.finditer(text) if match.end() > forced]
            spans = self.tokenizers.tgt.decode_spans(hypothesis.tokens) if matches else []
            for match in matches:
                inside = (begin < match.end() and end > match.start() for begin, end in spans)
                spellings.add(tuple(compress(hypothesis.tokens, inside)))
        return spellings

    def _rank(self, draws: list[Found]) -> list[Found]:
        """Rank draws by how much the others agree with each."""
        means = agreement([self.tokenizers.tgt.decode(draw.tokens) for draw in draws])
        ranked = [draw._replace(score=mean) for draw, mean in zip(draws, means, strict=True)]
        return sorted(ranked, key=lambda draw: -draw.score)

    def _run(self, sources: Sequence[Source], request: Request) -> list[list[Found]]:
        """Let the engine that can do it search; where it finds nothing, the translation is empty."""
        if not sources:
            return []
        if self._process != os.getpid():
            raise ConfigError(
                "this Translator is closed: load another"
                if self._process is None
                else "this Translator was loaded before the process forked, and its threads are not here: "
                "load one in each process, or start them by spawn"
            )
        found = [[Found([], -math.inf, -math.inf, False)] for _ in sources]
        engine = self._engine_for(request)
        answers = engine.translate(sources, request)
        if engine is not self._engine:
            answers = iter(aside(partial(list, answers)))
        for number, hypotheses in answers:
            found[number] = hypotheses or found[number]
        return found

    def _engine_for(self, request: Request) -> Engine:
        reason = self._engine.refuses(request)
        if reason is None:
            return self._engine
        if self._make_fallback is None:
            raise ConfigError(f"the engine {self._engine.name} cannot do this: {reason}")
        if self._fallback is None:
            self._fallback = aside(self._make_fallback)
        self._say_once(f"{self._engine.name} cannot do {reason}: {self._fallback.name} does it")
        reason = self._fallback.refuses(request)
        if reason is not None:
            raise ConfigError(f"no engine can do this: {reason}")
        return self._fallback

    def _say_once(self, word: str) -> None:
        if word not in self._said:
            self._said.add(word)
            self._say(word)

    def _put_together(self, src: str, solved: Sequence[_Solved], wish: _Wish) -> Translation:
        """Make a text of its translated sentences and the white space between them."""
        sentences: list[Sentence] = []
        texts: list[str] = []
        src_start = start = 0
        for part in solved:
            text = part.text
            if part.found:
                sentence = self._sentence(part, src_start, start, wish)
                sentences.append(sentence)
                text = sentence.hypotheses[0].text
            texts.append(text)
            src_start, start = src_start + len(part.text), start + len(text)
        return Translation(src, "".join(texts), tuple(sentences))

    def _sentence(self, part: _Solved, src_start: int, start: int, wish: _Wish) -> Sentence:
        decode = self.tokenizers.tgt.decode
        hypotheses = tuple(
            Hypothesis(decode(one.tokens), one.log_prob, one.score, one.ended, len(one.tokens) + one.ended)
            for one in part.found
        )
        best = part.found[0]
        sentence = Sentence(
            (src_start, src_start + len(part.text)), (start, start + len(hypotheses[0].text)), hypotheses, part.looped
        )
        if not (wish.tokens or wish.request.attention):
            return sentence
        spans = self.tokenizers.tgt.decode_spans(best.tokens)
        log_probs = best.token_log_probs
        probabilities = [None] * len(spans) if log_probs is None else [math.exp(p) for p in log_probs[: len(spans)]]
        pieces = self.tokenizers.tgt.pieces(best.tokens)
        sentence = sentence._replace(tokens=tuple(map(Token, pieces, _shift(spans, start), probabilities)))
        if best.attention is None:
            return sentence
        src_spans = self.tokenizers.src.spans(self._read(part.text))
        src_pieces = self.tokenizers.src.pieces(part.source.tokens)
        if wish.alignment:
            src_words, words = _align(best.attention, part.text, src_spans, hypotheses[0].text, spans)
            links = zip(_shift(src_words, src_start), _shift(words, start), strict=True)
            sentence = sentence._replace(alignment=tuple(links))
        return sentence._replace(
            src_tokens=tuple(map(Piece, src_pieces, _shift(src_spans, src_start))),
            attention=best.attention if wish.attention else None,
        )


def _check_texts(texts: object) -> None:
    if not isinstance(texts, Iterable):
        raise ConfigError(f"a text, a list of texts or an iterator of them is translated, not {texts!r}")


def _align(
    attention: NDArray[np.float32], src: str, src_spans: Sequence[Span], text: str, spans: Sequence[Span]
) -> tuple[list[Span], list[Span]]:
    """Give the words that belong together, as characters of the source and of the translation."""
    links = word_alignment(attention, word_pieces(src, src_spans), word_pieces(text, spans))
    src_words, words = ([word.span() for word in _WORD.finditer(side)] for side in (src, text))
    return [src_words[one] for one, _ in links], [words[other] for _, other in links]


def _without_loops(request: Request) -> Request:
    return request._replace(search=request.search.model_copy(update={"no_repeat_ngram": NGRAM}))


def _interleave(spans: Iterable[str], solved: Iterator[list[_Solved]]) -> list[_Solved]:
    """Put the answers for sentences, in order, between the white space that stands between them."""
    parts: list[_Solved] = []
    for span in spans:
        parts += [_Solved(span, Source(()), [], False)] if span.isspace() else next(solved)
    return parts


def _shift(spans: Iterable[Span], by: int) -> list[Span]:
    return [(start + by, end + by) for start, end in spans]


def _variants(word: str) -> list[str]:
    """Write a word as it stands and as it begins a sentence."""
    return list(dict.fromkeys([word, word[0].upper() + word[1:]]))
