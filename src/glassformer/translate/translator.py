"""The Translator: text in, text out, and everything that can be asked about a translation.

Texts go through four steps, in windows: they are split into segments (`segments`), sentences are encoded, an engine
searches for their translations (`engines`, with the retries of `retries`), and the segments are put back together.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack, overload

from glassformer.config import SearchConfig, TranslateOptions
from glassformer.errors import ConfigError
from glassformer.store.folder import About, read_config
from glassformer.store.registry import DEFAULT_MODEL, find_model
from glassformer.text.tokenizer import Tokenizers
from glassformer.translate.engines.engine import Engine, Request, Source
from glassformer.translate.loading import Engines, load_engines, load_tokenizers
from glassformer.translate.request import encode_prefix, make_request
from glassformer.translate.results import Translation
from glassformer.translate.retries import RetryingSearch, without_loops
from glassformer.translate.segments import Segment, assemble, fill, split_text, windows

if TYPE_CHECKING:
    from glassformer.explainer import explanation
    from glassformer.explainer.explanation import Explanation
    from glassformer.model.transformer import Transformer

_Options = TranslateOptions | None

DEFAULT_SEARCH: Final = SearchConfig(width=5)

_SHOUTED: Final = re.compile(r"[^\W\d_]{2}.*\s.*[^\W\d_]{2}", re.DOTALL)  # two words: a single one may be a name
_SHARES: Final = 4  # of a window: the engine works on one while others are tokenized or assembled
_MIN_SHARE: Final = 64  # texts


class Keywords(TypedDict, total=False):
    """The fields of `TranslateOptions` as keywords, which override the options given."""

    search: SearchConfig | None
    prefix: str
    suppress: Sequence[str]
    require: Sequence[str]
    n_best: int
    token_probabilities: bool
    alignment: bool
    attention: bool


class Translator:
    """A model that translates texts."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        about: About | None = None,
        *,
        max_positions: int = 1024,
        search: SearchConfig | None = None,
        fallback: Callable[[], Engine] | None = None,
        split: bool = True,
    ) -> None:
        """Combine what `load` reads from a folder; `fallback` makes the engine for what the first one refuses."""
        self.split = split
        self.tokenizers = tokenizers
        self.about = about or About()
        self.search = search or self.about.search or DEFAULT_SEARCH
        self.max_positions = max_positions
        self._engines = Engines(engine, fallback)

    @classmethod
    def load(
        cls,
        model: str | Path | Sequence[str | Path] = DEFAULT_MODEL,
        *,
        engine: str = "auto",
        search: SearchConfig | None = None,
        threads: int = 0,
        device: str = "cpu",
        split: bool = True,
        compute: str = "auto",
        say: Callable[[str], None] | None = None,
    ) -> Self:
        """Load a model by its folder or name, or several as an ensemble.

        `split=False` takes each text as one sentence. `compute` is CTranslate2's number format: float32, int8, ...; or
        auto, the fastest one that is accurate.
        """
        if say is not None:
            warnings.warn("say is ignored: messages go to the logger 'glassformer'", DeprecationWarning, stacklevel=2)
        folders = [find_model(name) for name in ([model] if isinstance(model, str | Path) else model)]
        if not folders:
            raise ConfigError("no model to translate with: name a model folder")
        configs = [read_config(folder) for folder in folders]
        tokenizers, about = load_tokenizers(folders, configs), configs[0].about
        first, fallback = load_engines(engine, folders, about, threads=threads, device=device, compute=compute)
        positions = min(config.model.max_positions for config in configs)  # exports have tables of that size, too
        return cls(first, tokenizers, about, max_positions=positions, search=search, fallback=fallback, split=split)

    @overload
    def translate(self, texts: str, options: _Options = None, **keywords: Unpack[Keywords]) -> str: ...
    @overload
    def translate(self, texts: list[str], options: _Options = None, **keywords: Unpack[Keywords]) -> list[str]: ...
    @overload
    def translate(
        self, texts: Iterator[str], options: _Options = None, **keywords: Unpack[Keywords]
    ) -> Iterator[str]: ...
    def translate(
        self, texts: str | Iterable[str], options: _Options = None, **keywords: Unpack[Keywords]
    ) -> str | list[str] | Iterator[str]:
        """Translate a text, a list of texts, or a stream of texts lazily; order is kept."""
        found = (translation.text for translation in self._start(texts, options, keywords, scores=False))
        return next(found) if isinstance(texts, str) else list(found) if isinstance(texts, list) else found

    @overload
    def results(self, texts: str, options: _Options = None, **keywords: Unpack[Keywords]) -> Translation: ...
    @overload
    def results(
        self, texts: list[str], options: _Options = None, **keywords: Unpack[Keywords]
    ) -> list[Translation]: ...
    @overload
    def results(
        self, texts: Iterator[str], options: _Options = None, **keywords: Unpack[Keywords]
    ) -> Iterator[Translation]: ...
    def results(
        self, texts: str | Iterable[str], options: _Options = None, **keywords: Unpack[Keywords]
    ) -> Translation | list[Translation] | Iterator[Translation]:
        """Translate as `translate` does, and report what the options ask for besides the text."""
        found = self._start(texts, options, keywords, scores=True)
        return next(found) if isinstance(texts, str) else list(found) if isinstance(texts, list) else found

    if TYPE_CHECKING:
        explain = explanation.explain  # with its signature
    else:

        def explain(self, text: str, **keywords: Any) -> Explanation:
            """Translate a sentence and record every number on the way; see `glassformer.explain`."""
            from glassformer.explainer.explanation import explain

            return explain(self, text, **keywords)

    @property
    def engine(self) -> str:
        """The name of the engine that translates unless it cannot."""
        return self._engines.first.name

    def engine_for(self, search: SearchConfig) -> str:
        """Return the name of the engine that runs a search."""
        return self._engines.choose(self._request(TranslateOptions(search=search), scores=True)).name

    @property
    def model(self) -> Transformer:
        """The torch model, whichever engine translates with its weights."""
        return self._engines.model()

    def read(self, text: str) -> str:
        """Return a sentence as the model reads it, character by character."""
        if self.about.lower_capitals and text.isupper() and _SHOUTED.search(text) and len(text.lower()) == len(text):
            return text.lower()
        return text

    def close(self) -> None:
        """Release threads and memory."""
        self._engines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(
        self, texts: object, options: _Options, keywords: Mapping[str, Any], *, scores: bool
    ) -> Iterator[Translation]:
        """Validate a call, and translate its texts as they are needed."""
        if not isinstance(texts, Iterable):
            raise ConfigError(f"expected a text, a list of texts or an iterator of texts, got {texts!r}")
        options = TranslateOptions.parse({**dict(options or ()), **keywords}, "translate")
        request = self._request(options, scores=scores)
        several = windows([texts] if isinstance(texts, str) else texts)
        return (translation for window in several for translation in self._window(window, options, request))

    def _request(self, options: TranslateOptions, *, scores: bool) -> Request:
        return make_request(options, self.search, self.tokenizers.tgt, max_positions=self.max_positions, scores=scores)

    def _window(self, texts: list[str], options: TranslateOptions, request: Request) -> list[Translation]:
        """Translate a window of texts, in shares of similar length, so that the engine need not wait for the rest."""
        engine, n_shares = self._engines.first, min(_SHARES, len(texts) // _MIN_SHARE)
        if n_shares < 2 or not engine.is_thread_safe or engine.refuses(without_loops(request)):
            return self._translate(texts, options, request)
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        size = -(-len(order) // n_shares)
        shares = [[texts[i] for i in order[first : first + size]] for first in range(0, len(order), size)]
        with ThreadPoolExecutor(n_shares, "share") as pool:
            found = pool.map(lambda share: self._translate(share, options, request), shares)
            by_number = dict(zip(order, (each for some in found for each in some), strict=True))
        return [by_number[i] for i in range(len(texts))]

    def _translate(self, texts: list[str], options: TranslateOptions, request: Request) -> list[Translation]:
        """Segment, encode, search, assemble."""
        whole = bool(request.required) or not self.split
        segmented = [split_text(text, self.about.src_lang, whole=whole) for text in texts]
        encode = partial(self._encode, prefix=encode_prefix(options, self.tokenizers.tgt))
        encoded = encode([segment for segments in segmented for segment in segments if not segment.is_space])
        found = iter(RetryingSearch(self._engines, encode, self.tokenizers.tgt, options, request).search(encoded))
        return [
            assemble(text, fill(segments, found), self.tokenizers, options, self.read)._replace(
                calibration=self.about.calibration
            )
            for text, segments in zip(texts, segmented, strict=True)
        ]

    def _encode(self, segments: Sequence[Segment], prefix: Sequence[int]) -> list[Segment]:
        encoded = self.tokenizers.src.encode_batch([self.read(segment.text) for segment in segments])
        # A single character that is longer than the model's longest sequence cannot be split as a text.
        limits = [self.max_positions - 1 if len(segment.text) == 1 else None for segment in segments]
        return [
            segment._replace(source=Source(tokens[:limit], prefix if segment.is_first else ()))
            for segment, tokens, limit in zip(segments, encoded, limits, strict=True)
        ]
