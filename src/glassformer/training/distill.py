"""Sequence-level distillation (Kim and Rush 2016): a teacher translates source text, a student trains on the result.

Translations are written in shards, each atomically, so that an interrupted distillation resumes after its last shard.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from glassformer.config import CorpusConfig, SearchConfig, TranslateOptions
from glassformer.data.formats import Faults, OnFault, corpus_size, open_corpus, read_texts
from glassformer.data.languages import usual_language
from glassformer.data.lines import Watch, no_watch
from glassformer.errors import ConfigError, DataError
from glassformer.evaluation.scores import sentence_bleu
from glassformer.files import atomic_file, write_text
from glassformer.store.folder import WEIGHTS
from glassformer.store.registry import find_model
from glassformer.training.recipe import Recipe
from glassformer.training.run import check_run_folder
from glassformer.training.start import check_recipe
from glassformer.translate.results import Translation
from glassformer.translate.translator import Translator

MANIFEST: Final = "distilled.json"

_SHARD: Final = 5000  # sentences
_SAMPLE: Final = 200  # sentences that show the language of a corpus
_SECONDS_BETWEEN_LINES: Final = 30.0

_log = logging.getLogger(__name__)


class SourceText(NamedTuple):
    """What a teacher translates: the source side of a corpus, or a file with one sentence per line."""

    origin: CorpusConfig | Path
    on_fault: OnFault = "skip"

    @property
    def path(self) -> Path:
        """Its file."""
        return self.origin if isinstance(self.origin, Path) else self.origin.path

    @property
    def size(self) -> int:
        """Its size on disk, in bytes."""
        if isinstance(self.origin, CorpusConfig):
            return corpus_size(self.origin)
        return self.origin.stat().st_size if self.origin.exists() else 0

    def read(self, watch: Watch = no_watch) -> Iterator[tuple[str, str]]:
        """Yield each sentence with its reference, which is empty if there is none."""
        if isinstance(self.origin, Path):
            return ((line, "") for line in read_texts(self.origin, watch))
        return ((pair.src, pair.tgt) for pair in open_corpus(self.origin, Faults(), self.on_fault, watch))


class Distillation(NamedTuple):
    """The text that teachers translate for a student, how, and where their translations are kept."""

    recipe: Recipe  # of the student, with the corpora whose sources are translated
    teachers: tuple[str | Path, ...]  # several form an ensemble
    text: tuple[Path, ...] = ()  # monolingual files, one sentence per line
    given_folder: Path | None = None
    n_best: int = 5  # hypotheses that are compared with a reference
    beam: int | None = None  # beam size of the teacher; its own if not given
    add_references: bool = False  # the student trains on the original pairs, too

    @property
    def out(self) -> Path:
        """The run folder of the student."""
        if self.recipe.out is None:
            raise ConfigError("out is not set: name the run folder")
        return self.recipe.out

    @property
    def folder(self) -> Path:
        """Where the translations are kept, by default next to the run folder."""
        return self.given_folder or self.out.with_name(f"{self.out.name}-distilled")

    @property
    def sources(self) -> list[SourceText]:
        """Everything that is translated."""
        corpora = [SourceText(corpus, self.recipe.reader.on_fault) for corpus in self.recipe.train]
        return corpora + [SourceText(path) for path in self.text]

    @property
    def size(self) -> int:
        """The size of all sources on disk, in bytes."""
        return sum(source.size for source in self.sources)

    @property
    def student(self) -> Recipe:
        """The recipe that trains on the translations."""
        weights = [corpus.weight for corpus in self.recipe.train] + [1.0] * len(self.text)
        paths = map(self.path, range(len(weights)))
        distilled = [CorpusConfig(path=path, weight=weight) for path, weight in zip(paths, weights, strict=True)]
        references = self.recipe.train if self.add_references else ()
        return self.recipe.model_copy(update={"train": (*distilled, *references)})

    def path(self, number: int) -> Path:
        """Return the file that the translations of a source are written to."""
        return self.folder / f"{number:02d}-{self.sources[number].path.name.split('.')[0]}.tsv.gz"


def translate_sources(
    plan: Distillation,
    *,
    fresh: bool = False,
    accept_changes: bool = False,
    engine: str = "auto",
    watch: Watch = no_watch,
) -> None:
    """Translate the sources of a distillation that are not translated yet, after checking that the student can train.

    Of the n-best translations of a sentence with a reference, the one with the highest sentence BLEU is kept.
    """
    check_run_folder(plan.out, plan.student, fresh=fresh, accept_changes=accept_changes)
    with Translator.load(plan.teachers, engine=engine, threads=plan.recipe.training.threads) as teacher:
        _check(plan, teacher)
        search = teacher.search
        if plan.beam is not None:
            search = SearchConfig.parse({**search.model_dump(), "width": plan.beam}, "beam")
        _open_folder(plan, search)
        for number, source in enumerate(plan.sources):
            n_best = 1 if isinstance(source.origin, Path) else plan.n_best  # text has nothing to compare with
            options = TranslateOptions(search=search, n_best=n_best)
            _translate(source, plan.path(number), teacher, options, watch)


def _check(plan: Distillation, teacher: Translator) -> None:
    """Raise, before hours of work, if teacher, student and text do not fit together."""
    recipe, about = plan.recipe, teacher.about
    check_recipe(recipe)
    for corpus in recipe.dev:
        if not any(True for _ in open_corpus(corpus, Faults(), recipe.reader.on_fault)):
            raise DataError(f"{corpus.path}: no sentence pair to validate on")
    for name in ("src_lang", "tgt_lang"):
        ours, theirs = getattr(recipe, name), getattr(about, name)
        if ours and theirs and ours != theirs:
            raise ConfigError(
                f"the teacher translates from {about.src_lang or '?'} to {about.tgt_lang or '?'}, "
                f"but the recipe sets {name}={ours!r}"
            )
    for source in plan.sources:
        some = [sentence for sentence, _ in islice(source.read(), _SAMPLE)]
        if not some:
            raise DataError(f"{source.path}: no sentence to translate")
        found = usual_language(some)
        if found and about.src_lang and found != about.src_lang:
            raise ConfigError(
                f"{source.path} looks like {found}, but the teacher translates from {about.src_lang}; "
                "for a corpus with its sides the other way round, set swap = true"
            )


def _open_folder(plan: Distillation, search: SearchConfig) -> None:
    """Create the folder, or raise if it holds the translations of another teacher or of other text."""
    manifest: dict[str, Any] = {
        "teachers": [_sha256(find_model(name) / WEIGHTS) for name in plan.teachers],
        "search": search.model_dump(mode="json"),
        "n_best": plan.n_best,
        "sources": [{"name": source.path.name, "bytes": source.size} for source in plan.sources],
    }
    path = plan.folder / MANIFEST
    if path.exists():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise DataError(f"{path} is damaged; delete {plan.folder} and translate again") from None
        if changed := [name for name in manifest if before.get(name) != manifest[name]]:
            raise ConfigError(
                f"{plan.folder} was made with other {' and '.join(changed)}; use another folder or delete this one"
            )
        return
    if plan.folder.is_dir() and any(plan.folder.iterdir()):
        raise DataError(f"{plan.folder} contains files that no distillation wrote; use a new or empty folder")
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{plan.folder} cannot be created: {error.strerror}") from None
    write_text(path, json.dumps(manifest, indent=1) + "\n", durable=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _translate(source: SourceText, out: Path, teacher: Translator, options: TranslateOptions, watch: Watch) -> None:
    """Translate a source shard by shard, and join the shards when all are there."""
    if out.exists():
        watch(source.size)
        return
    sentences, shards, counts, last = source.read(watch), list[Path](), Counter[str](), time.monotonic()
    while some := list(islice(sentences, _SHARD)):
        shards.append(out.with_name(f"{out.name}.{len(shards):05d}"))
        if shards[-1].exists():
            continue
        found = teacher.results([sentence for sentence, _ in some], options)
        rows = [
            f"{sentence}\t{chosen}\n"
            for (sentence, reference), translation in zip(some, found, strict=True)
            if (chosen := _choose(translation, reference, counts))
        ]
        with atomic_file(shards[-1], durable=True) as file:
            file.write(gzip.compress("".join(rows).encode(), mtime=0))
        if time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            _log.info("%s: translated %s sentences", source.path.name, f"{counts.total():,}")
            last = time.monotonic()
    with atomic_file(out, durable=True) as file:
        for shard in shards:
            file.write(shard.read_bytes())  # gzip files one after the other are a gzip file
    for shard in shards:
        shard.unlink()
    if counts:
        _log.info("%s: %s", out.name, ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items())))


def _choose(translation: Translation, reference: str, counts: Counter[str]) -> str:
    """Return the translation to learn from, or an empty string if there is none."""
    text = translation.text.strip()
    fault = "empty" if not text else "cut off" if not translation.ended else "repetitive" if translation.looped else ""
    if fault:
        counts[f"{fault}, left out"] += 1
        return ""
    counts["kept"] += 1
    if reference:
        text = max(translation.n_best, key=lambda hypothesis: sentence_bleu(hypothesis, reference))
    return " ".join(text.split())
