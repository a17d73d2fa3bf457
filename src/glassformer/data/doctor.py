"""The data doctor: read a parallel corpus twice and report what is wrong with it.

The first pass learns what is usual: the length ratio and the two languages. The second checks each pair. Memory grows
only by two fingerprints per pair.
"""

from __future__ import annotations

import math
import re
import time
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from glassformer.config import CorpusConfig, DoctorConfig
from glassformer.data.checks import (
    REMOVED_BY_DEFAULT,
    TEXT_CHECKS,
    Finding,
    Kind,
    check_copy,
    check_length,
    check_ratio,
    check_wordless,
    normal_form,
)
from glassformer.data.clean import CleanCorpus
from glassformer.data.fingerprints import Fingerprints, fingerprint
from glassformer.data.formats import Faults, OnFault, open_corpora
from glassformer.data.languages import MIN_PAIRS, Judge
from glassformer.data.lengths import Shape
from glassformer.data.lines import Watch, no_watch
from glassformer.data.pair import Pair
from glassformer.errors import DataError, UsageError, nearest

_BATCH: Final = 1024  # pairs that are checked together, at most
_BATCH_LENGTH: Final = 1 << 18  # and their characters, at most, unless one pair has more
_SAMPLE: Final = 4096  # pairs, at least, that show what is usual
_N_EXAMPLES: Final = 5
_NUMBER: Final = re.compile(r"\d+")


class Example(NamedTuple):
    """A pair with one of its findings."""

    pair: Pair
    finding: Finding


@dataclass(frozen=True)
class Diagnosis:
    """The findings of the doctor."""

    files: tuple[str, ...]
    held_out: tuple[str, ...]  # files of dev and test
    faults: Faults  # lines that could not be read as pairs
    n_kept: int
    counts: Mapping[Kind, int]  # pairs with a finding of a kind; one pair may have several
    examples: Mapping[Kind, tuple[Example, ...]]  # the worst first
    remove: frozenset[Kind]  # kinds for which a pair is not kept
    usual_ratio: float  # source length over target length, in characters
    languages: str  # of the two sides, or why they were not judged
    are_languages_judged: bool
    shape: Shape
    n_fingerprint_bytes: int
    seconds: float

    @property
    def n_pairs(self) -> int:
        """Number of pairs that were read."""
        return self.faults.n_pairs

    @property
    def n_removed(self) -> int:
        """Number of pairs that are not kept."""
        return self.n_pairs - self.n_kept

    def was_looked_for(self, kind: Kind) -> bool:
        """Return whether a kind was looked for at all."""
        if kind is Kind.OVERLAP:
            return bool(self.held_out)
        return self.are_languages_judged or kind not in (Kind.SWAPPED, Kind.WRONG_LANGUAGE)

    def as_dict(self) -> dict[str, object]:
        """Return everything as plain values, for JSON."""
        lengths = self.shape.lengths()
        return {
            "files": list(self.files),
            "held_out": list(self.held_out),
            "lines": self.faults.n_lines,
            "pairs": self.n_pairs,
            "kept": self.n_kept,
            "removed": self.n_removed,
            "unreadable": {kind.name.lower().replace("_", "-"): n for kind, n in self.faults.counts.items()},
            "findings": {str(kind): self.counts[kind] for kind in Kind if self.was_looked_for(kind)},
            "removed_kinds": [str(kind) for kind in Kind if kind in self.remove],
            "examples": {
                str(kind): [{**pair._asdict(), "detail": finding.detail} for pair, finding in examples]
                for kind, examples in self.examples.items()
            },
            "lengths": {side: bars._asdict() for side, bars in zip(("source", "target"), lengths, strict=True)},
            "ratios": self.shape.ratios()._asdict(),
            "usual_ratio": self.usual_ratio,
            "languages": self.languages,
            "seconds": self.seconds,
        }


def what_to_remove(keep: Sequence[str], remove: Sequence[str]) -> frozenset[Kind]:
    """Return the kinds that are removed by default, without those in `keep` and with those in `remove`."""
    for word in (*keep, *remove):
        if word not in [*Kind]:
            raise UsageError(f"unknown kind of finding {word}; {nearest(word, [*Kind])}")
    both = set(keep) & set(remove)
    if both:
        raise UsageError(f"{', '.join(sorted(both))}: cannot both keep and remove")
    return frozenset(kind for kind in Kind if kind in remove or (kind.is_removed and kind not in keep))


def examine(
    corpora: Sequence[CorpusConfig],
    dev: Sequence[CorpusConfig] = (),
    test: Sequence[CorpusConfig] = (),
    config: DoctorConfig | None = None,
    remove: frozenset[Kind] = REMOVED_BY_DEFAULT,
    on_fault: OnFault = "skip",
    clean: CleanCorpus | None = None,
    watch: Watch = no_watch,
) -> Diagnosis:
    """Check each pair of the corpora of one training set, and write the cleaned corpus if `clean` is given.

    `watch` is called with the number of bytes read: those of `corpora` twice, those of `dev` and `test` once.
    """
    begun = time.perf_counter()
    for path in (path for corpus in corpora for path in corpus.paths):
        if path.exists() and not path.is_file():
            raise DataError(
                f"{path} is not a regular file; the doctor reads a corpus twice, so write it to a file first"
            )
    held_out = [_HeldOut("dev", open_corpora(dev, Faults(), on_fault, watch))]
    held_out.append(_HeldOut("test", open_corpora(test, Faults(), on_fault, watch)))
    usual = _learn(open_corpora(corpora, Faults(), on_fault, watch))
    examination = _Examination(config or DoctorConfig(), usual, held_out)

    faults = Faults(hear=None if clean is None else clean.remove_fault)
    counts: Counter[Kind] = Counter()
    worst: dict[Kind, list[Example]] = {kind: [] for kind in Kind}
    shape = Shape()
    n_kept = 0
    for batch in _batches(open_corpora(corpora, faults, on_fault, watch)):
        shape.add(np.array([[len(pair.src) for pair in batch], [len(pair.tgt) for pair in batch]]))
        for pair, findings in zip(batch, examination.judge(batch), strict=True):
            for finding in findings:
                counts[finding.kind] += 1
                _keep_if_bad(worst[finding.kind], Example(pair, finding))
            reasons = [finding.kind for finding in findings if finding.kind in remove]
            n_kept += not reasons
            if clean is not None:
                clean.remove(pair, reasons) if reasons else clean.keep(pair)
    if not faults.n_pairs:
        why = "; ".join(faults.report())
        raise DataError(f"{', '.join(_files(corpora))}: no pairs in {faults.n_lines:,} lines{why and f': {why}'}")
    return Diagnosis(
        files=_files(corpora),
        held_out=_files([*dev, *test]),
        faults=faults,
        n_kept=n_kept,
        counts=counts,
        examples={kind: tuple(worst[kind]) for kind in Kind if counts[kind]},
        remove=remove,
        usual_ratio=usual.ratio,
        languages=usual.languages,
        are_languages_judged=usual.judge is not None,
        shape=shape,
        n_fingerprint_bytes=examination.n_fingerprint_bytes,
        seconds=time.perf_counter() - begun,
    )


class _Usual(NamedTuple):
    """What the first pass learned."""

    ratio: float
    judge: Judge | None
    languages: str


def _learn(pairs: Iterable[Pair]) -> _Usual:
    sample: list[Pair] = []  # evenly spread over the corpus
    stride = 1
    for number, pair in enumerate(pairs):
        if number % stride == 0:
            sample.append(pair)
            if len(sample) == 2 * _SAMPLE:
                sample = sample[::2]
                stride *= 2
    if not sample:
        return _Usual(1.0, None, "no pairs")
    ratio = math.exp(float(np.median([math.log(len(pair.src) / len(pair.tgt)) for pair in sample])))
    if len(sample) < MIN_PAIRS:
        return _Usual(ratio, None, f"not judged: fewer than {MIN_PAIRS} pairs")
    src, tgt = [pair.src for pair in sample], [pair.tgt for pair in sample]
    judge = Judge(src, tgt, (list(map(normal_form, src)), list(map(normal_form, tgt))))
    if not all(judge.languages):
        return _Usual(ratio, None, "not judged: the texts of a side are in no one language")
    if judge.languages[0] == judge.languages[1]:
        return _Usual(ratio, None, f"not judged: both sides look like {judge.languages[0]}")
    return _Usual(ratio, judge, " and ".join(judge.languages))


def _batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    batch: list[Pair] = []
    length = 0
    for pair in pairs:
        batch.append(pair)
        length += len(pair.src) + len(pair.tgt)
        if len(batch) == _BATCH or length >= _BATCH_LENGTH:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


class _HeldOut:
    """The sentences of dev or test, by the fingerprints of their normal forms."""

    def __init__(self, name: str, pairs: Iterable[Pair]) -> None:
        self._name = name
        self._sides = Fingerprints(), Fingerprints()
        for batch in _batches(pairs):
            for side, texts in zip(self._sides, ([p.src for p in batch], [p.tgt for p in batch]), strict=True):
                side.add(fingerprint(filter(None, map(normal_form, texts))))

    def overlaps(self, src: Sequence[str], tgt: Sequence[str]) -> dict[int, str]:
        """Return, by position, which sides of pairs of normal forms are held out."""
        is_in = [side.contains(fingerprint(forms)) for side, forms in zip(self._sides, (src, tgt), strict=True)]
        return {
            int(i): " and ".join(side for side, found in zip(("source", "target"), is_in, strict=True) if found[i])
            + f" in {self._name}"
            for i in np.flatnonzero(is_in[0] | is_in[1])
        }


class _Examination:
    """Checks pairs, and remembers them to find duplicates."""

    def __init__(self, config: DoctorConfig, usual: _Usual, held_out: Sequence[_HeldOut]) -> None:
        self._config = config
        self._usual = usual
        self._held_out = held_out
        self._seen, self._nearly_seen = Fingerprints(), Fingerprints()

    @property
    def n_fingerprint_bytes(self) -> int:
        """Memory of the fingerprints, which grows with the corpus."""
        return self._seen.n_bytes + self._nearly_seen.n_bytes

    def judge(self, batch: Sequence[Pair]) -> list[list[Finding]]:
        """Return the findings of each pair, duplicates of pairs in earlier batches included."""
        src = [normal_form(pair.src) for pair in batch]
        tgt = [normal_form(pair.tgt) for pair in batch]
        findings: list[list[Finding]] = [[] for _ in batch]
        is_again = self._seen.add(fingerprint(f"{pair.src}\t{pair.tgt}" for pair in batch))
        is_nearly_again = self._nearly_seen.add(fingerprint(map(_near_form, batch, src, tgt)))
        for i in map(int, np.flatnonzero(is_nearly_again)):
            kind = Kind.DUPLICATE if is_again[i] else Kind.NEAR_DUPLICATE
            findings[i].append(Finding(kind, "", len(batch[i].src)))
        overlaps: dict[int, list[str]] = {}
        for held_out in self._held_out:
            for i, where in held_out.overlaps(src, tgt).items():
                overlaps.setdefault(i, []).append(where)
        for i, places in overlaps.items():
            findings[i].append(Finding(Kind.OVERLAP, ", ".join(places), len(batch[i].src)))
        languages = self._languages(batch, src, tgt)
        for i, pair in enumerate(batch):
            findings[i] += self._texts(pair, (src[i], tgt[i]), languages.get(i))
        return findings

    def _languages(self, batch: Sequence[Pair], src: Sequence[str], tgt: Sequence[str]) -> dict[int, Finding]:
        """Check the languages of pairs that are not copies, which have findings of their own."""
        if self._usual.judge is None:
            return {}
        longest = self._config.max_length
        places = [
            i
            for i, pair in enumerate(batch)
            if src[i] != tgt[i] and len(pair.src) <= longest and len(pair.tgt) <= longest
        ]
        verdicts = self._usual.judge.judge(
            [(batch[i].src, batch[i].tgt) for i in places], [(src[i], tgt[i]) for i in places]
        )
        return {places[position]: finding for position, finding in verdicts.items()}

    def _texts(self, pair: Pair, forms: tuple[str, str], language: Finding | None) -> Iterator[Finding]:
        """Yield the findings of the two texts by themselves; a pair that is too long is not checked further."""
        src, tgt = pair.src, pair.tgt
        too_long = check_length(src, tgt, self._config)
        if too_long is not None:
            yield too_long
            return
        findings = [check_copy(forms, self._config), language, *(check(src, tgt) for check in TEXT_CHECKS)]
        findings += [check_ratio(src, tgt, self._usual.ratio, self._config), check_wordless(src, tgt)]
        yield from (finding for finding in findings if finding is not None)


def _near_form(pair: Pair, src: str, tgt: str) -> str:
    """Return what near duplicates share: the words with numbers masked, or the texts if there are no words."""
    return _NUMBER.sub("0", f"{src}\t{tgt}") if src and tgt else f"{pair.src}\t{pair.tgt}"


def _keep_if_bad(worst: list[Example], example: Example) -> None:
    """Keep the worst few examples with different sources, the worst first; among equals the earlier ones."""
    if all(kept.pair.src != example.pair.src for kept in worst):
        insort(worst, example, key=lambda each: -each.finding.severity)
        del worst[_N_EXAMPLES:]


def _files(corpora: Iterable[CorpusConfig]) -> tuple[str, ...]:
    return tuple(",".join(map(str, corpus.paths)) for corpus in corpora)
