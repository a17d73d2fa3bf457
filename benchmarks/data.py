"""How fast a corpus is prepared and batched, in how much memory, and how much of a batch is padding.

    GLASSFORMER_DATA=../shared/data python benchmarks/data.py                    a few minutes
    GLASSFORMER_DATA=../shared/data python benchmarks/data.py --large 5000000    a corpus that is made up, and deleted

Pairs per second are of the whole preparation: reading, unpacking, cutting into ids, writing, syncing. Memory is the
peak of the main process plus that of its largest worker times their number. Each figure has a process of its own.
On a machine that is shared, what a pair costs in CPU time says more than pairs per second.
Batches are of 4,096 tokens; padding is the share of positions, source and target, that hold no token.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer.config import BatchConfig, CorpusConfig, NoiseConfig, ReaderConfig, TokenizerConfig
from glassformer.data.formats import Faults, open_corpus
from glassformer.data.prepared import Prepared
from glassformer.text.tokenizer import Tokenizers, train_tokenizers

CORPORA = ("multi30k.train.fr-en", "multi30k.train.de-en", "tatoeba.train.fr-en", "l10n.train.fr-en")
VOCAB, LINES_TO_LEARN_FROM, MAX_TOKENS = 8000, 50_000, 4096
READERS = {
    "plain": ReaderConfig(),
    "random": ReaderConfig(
        sample_alpha=0.2, join=0.1, noise=NoiseConfig(no_stop=0.1, lower=0.1, upper=0.02, no_accents=0.1, spaces=0.1)
    ),
}


def peak() -> float:
    """Say how many MB this process took at most (Linux); what its parent took before it does not count."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def learn(corpus: Path, folder: Path) -> None:
    """Learn a vocabulary, so that preparing can be measured alone."""
    pairs = islice(open_corpus(CorpusConfig(path=corpus), Faults()), LINES_TO_LEARN_FROM)
    train_tokenizers(((pair.src, pair.tgt) for pair in pairs), TokenizerConfig(vocab_size=VOCAB)).save(folder)


def prepare(corpus: Path, folder: Path, reader: str, n_processes: int) -> dict[str, float]:
    """Prepare once, from nothing."""
    start = time.perf_counter()
    prepared = Prepared(
        [CorpusConfig(path=corpus)], READERS[reader], Tokenizers.load(folder), folder, n_processes=n_processes
    )
    shard = prepared.epoch(0)
    seconds = time.perf_counter() - start
    usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    size = sum(path.stat().st_size for path in folder.glob("*/*")) / 2**20
    return {
        "pairs": shard.n_pairs,
        "pairs_per_s": shard.n_pairs / seconds,
        "cpu_us": sum(usage.ru_utime + usage.ru_stime for usage in usages) / shard.n_pairs * 1e6,
        "main_mb": peak(),
        "worker_mb": usages[1].ru_maxrss / 1024,
        "disk_mb": size,
    }


def batch(corpus: Path, folder: Path, most: int) -> dict[str, float]:
    """Plan an epoch of a prepared corpus and read `most` of its batches; nothing is prepared again."""
    from glassformer.data.batches import Batches

    before = peak()
    prepared = Prepared([CorpusConfig(path=corpus)], READERS["plain"], Tokenizers.load(folder), folder)
    batches = Batches(prepared, BatchConfig(max_tokens=MAX_TOKENS))
    start = time.perf_counter()
    count = batches.count(0)
    planned = time.perf_counter()
    tokens = positions = 0
    for number in range(min(count, most)):
        one = batches.read(0, number)
        tokens += one.n_tokens + one.n_src_tokens
        positions += one.src.numel() + one.tgt_in.numel()
    seconds = time.perf_counter() - planned
    return {
        "batches": count,
        "plan_s": planned - start,
        "tokens_per_s": tokens / seconds,
        "batches_per_s": min(count, most) / seconds,
        "padding": 1 - tokens / positions,
        "plan_mb": peak() - before,
    }


def measure(what: str, *arguments: object) -> dict[str, float]:
    """Run one of the functions above in a process of its own."""
    command = [sys.executable, __file__, "--worker", what, *map(str, arguments)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def clear(folder: Path) -> None:
    for path in folder.glob("*/*"):
        path.unlink()
    for path in folder.glob("*/"):
        path.rmdir()


def show_preparation(corpus: Path, folder: Path, reader: str, n_processes: int, rounds: int) -> None:
    found = []
    for _ in range(rounds):
        clear(folder)
        found.append(measure("prepare", corpus, folder, reader, n_processes))
    pace = statistics.median(one["pairs_per_s"] for one in found)
    cpu = min(one["cpu_us"] for one in found)
    last = found[-1]
    memory = last["main_mb"] + n_processes * last["worker_mb"]
    print(
        f"  {reader:6s} processes: {n_processes}  {pace:9,.0f} pairs/s, {cpu:3.0f} µs of CPU a pair  {memory:6,.0f} MB "
        f"(main {last['main_mb']:.0f}, worker {last['worker_mb']:.0f})  {last['disk_mb']:.0f} MB on disk",
        flush=True,
    )


def show_batches(corpus: Path, folder: Path, most: int) -> None:
    found = measure("batch", corpus, folder, most)
    print(
        f"  {found['batches']:,.0f} batches planned in {found['plan_s']:.2f} s and {found['plan_mb']:.0f} MB; "
        f"{found['batches_per_s']:,.0f} batches/s, {found['tokens_per_s'] / 1e6:.1f} million tokens/s; "
        f"padding {found['padding']:.2%}",
        flush=True,
    )


def compare(data: Path, rounds: int, processes: int) -> None:
    for name in CORPORA:
        corpus = data / f"{name}.tsv.gz"
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            learn(corpus, folder)
            print(name)
            show_preparation(corpus, folder, "random", processes, 1)
            show_preparation(corpus, folder, "plain", 1, rounds)
            show_preparation(corpus, folder, "plain", processes, rounds)
            show_batches(corpus, folder, 10**9)


def make_up(pairs: list[tuple[str, str]], count: int, path: Path) -> None:
    """Write `count` pairs, each of two sentence pairs that were drawn."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            one, two = draw.choice(pairs), draw.choice(pairs)
            file.write(f"{one[0]} {two[0]}\t{one[1]} {two[1]}\n")


def go_large(data: Path, count: int, processes: int, scratch: Path | None) -> None:
    known = data / "tatoeba.train.fr-en.tsv.gz"
    with tempfile.TemporaryDirectory(dir=scratch) as temporary:
        folder, corpus = Path(temporary), Path(temporary) / "large.tsv"
        learn(known, folder)
        pairs = [(pair.src, pair.tgt) for pair in open_corpus(CorpusConfig(path=known), Faults())]
        make_up(pairs, count, corpus)
        print(f"{count:,} pairs made up of {known.name}, {corpus.stat().st_size / 2**20:,.0f} MB of text")
        show_preparation(corpus, folder, "plain", processes, 1)
        show_batches(corpus, folder, 2000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--large", type=int, metavar="PAIRS", help="a corpus that is made up instead")
    parser.add_argument("--scratch", type=Path, help="where that corpus goes; about 500 bytes a pair")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        what, corpus, folder, *rest = args.worker
        answer: dict[str, Any] = (
            prepare(Path(corpus), Path(folder), rest[0], int(rest[1]))
            if what == "prepare"
            else batch(Path(corpus), Path(folder), int(rest[0]))
        )
        print(json.dumps(answer))
        return
    if "GLASSFORMER_DATA" not in os.environ:
        parser.error("GLASSFORMER_DATA must name the folder of the corpora")
    data = Path(os.environ["GLASSFORMER_DATA"])
    if args.large:
        go_large(data, args.large, args.processes, args.scratch)
    else:
        compare(data, args.rounds, args.processes)


if __name__ == "__main__":
    main()
