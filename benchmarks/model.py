"""How fast the model trains: tokens per second forward and backward, beside torch's own Transformer and the limit.

    python benchmarks/model.py             about two minutes
    python benchmarks/model.py --memory    peak memory of one long sequence, 512 to 4,096 tokens

Preset `small`, vocabulary 8,000, batches of about 4,096 target tokens of similar length, padded as real
text is (sentence lengths of Multi30k from $GLASSFORMER_DATA, or drawn from a like distribution). A token is
a source or target position that is no padding. Each contestant is a process of its own; they take turns, so
that a noisy machine disturbs all alike, and medians are compared.

The limit is what the matrix multiplications alone would take: each one of the model, forward and both
backward, at the speed measured for its shape in the same run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

VOCAB, BATCH_TOKENS, SMOOTHING, THREADS = 8000, 4096, 0.1, 2
Shape = tuple[int, int, int]  # sentences, source length, target length
Lengths = list[tuple[int, int]]


def sentence_lengths() -> Lengths:
    """Give the lengths of sentence pairs, end marks included."""
    folder = Path(os.environ.get("GLASSFORMER_DATA", "")) / "multi30k-tok"
    if folder.is_dir():
        src, tgt = (gzip.decompress((folder / f"train.{side}.gz").read_bytes()).splitlines() for side in ("de", "en"))
        return [(len(a.split()) + 1, len(b.split()) + 1) for a, b in zip(src, tgt, strict=True)]
    draw = random.Random(0)
    lengths = [max(4, round(draw.lognormvariate(2.5, 0.33))) for _ in range(29_000)]
    return [(max(3, round(n * draw.gauss(1, 0.15))), n) for n in lengths]


def batches(lengths: Lengths, count: int) -> list[Lengths]:
    """Group pairs of similar length to about BATCH_TOKENS target positions, and pick `count` groups evenly."""
    groups: list[Lengths] = [[]]
    for pair in sorted(lengths, key=lambda pair: (max(pair), pair[1])):
        if groups[-1] and (len(groups[-1]) + 1) * max(pair[1], *(t for _, t in groups[-1])) > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(pair)
    return [groups[(2 * i + 1) * len(groups) // (2 * count)] for i in range(count)]


def shape_of(batch: Lengths) -> Shape:
    return len(batch), max(s for s, _ in batch), max(t for _, t in batch)


def tokens_in(batch: Lengths) -> int:
    return sum(s + t for s, t in batch)


def make_step(name: str, work: list[Lengths]) -> Callable[[int], None]:
    """Build one contestant; the function runs forward and backward over a batch, by its number."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    from glassformer.config import preset
    from glassformer.convert.torch_transformer import from_torch
    from glassformer.model.attention import MultiHeadAttention
    from glassformer.model.fast.device import keep_large_blocks
    from glassformer.model.layers import FeedForward
    from glassformer.model.operations import sinusoid
    from glassformer.training.loss import cross_entropy

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    if name != "torch":
        keep_large_blocks()
    if name == "limit":
        multiplications = [limit_step(shape_of(batch)) for batch in work]
        return lambda number: multiplications[number]()

    size = preset("small", VOCAB)
    core = nn.Transformer(
        size.d_model,
        size.n_heads,
        size.n_encoder_layers,
        size.n_decoder_layers,
        size.d_ff,
        size.dropout,
        batch_first=True,
    )
    core.encoder.norm = core.decoder.norm = None
    core.encoder.enable_nested_tensor = False
    table = nn.Embedding(VOCAB, size.d_model)
    output = nn.Linear(size.d_model, VOCAB, bias=False)
    nn.init.normal_(table.weight, std=size.d_model**-0.5)
    output.weight = table.weight
    data = []
    for batch in work:
        n, n_src, n_tgt = shape_of(batch)
        src, tgt = torch.randint(4, VOCAB, (n, n_src)), torch.randint(4, VOCAB, (n, n_tgt))
        is_src = torch.arange(n_src) < torch.tensor([[s] for s, _ in batch])
        is_tgt = torch.arange(n_tgt) < torch.tensor([[t] for _, t in batch])
        data.append((src.masked_fill(~is_src, 0), tgt.masked_fill(~is_tgt, 0), is_src, is_tgt))

    if name == "ours":
        model = from_torch(core, table, output=output, target=table)
        for module in model.modules():  # torch drops in attention and feed-forward too; the paper does not
            if isinstance(module, MultiHeadAttention | FeedForward):
                module.dropout = 0.0
        model.train()

        def ours(number: int) -> None:
            src, tgt, is_src, is_tgt = data[number]
            where = is_tgt.flatten().nonzero().squeeze(1)
            hidden = model.hidden(src, tgt, is_src).flatten(0, 1).index_select(0, where)
            loss = cross_entropy(hidden, model.output.weight, model.output.bias, tgt[is_tgt], SMOOTHING)
            loss.backward()  # type: ignore[no-untyped-call]
            model.zero_grad()

        return ours

    positions = sinusoid(start=0, length=256, width=size.d_model, layout="interleaved", dtype=torch.float32)
    everything = nn.ModuleList([core, table]).train()

    def embed(ids: torch.Tensor) -> torch.Tensor:
        return F.dropout(table(ids) * math.sqrt(size.d_model) + positions[:, : ids.size(1)], size.dropout)

    def theirs(number: int) -> None:
        src, tgt, is_src, is_tgt = data[number]
        causal = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)
        memory = core.encoder(embed(src), src_key_padding_mask=~is_src)
        hidden = core.decoder(embed(tgt), memory, tgt_mask=causal, memory_key_padding_mask=~is_src, tgt_is_causal=True)
        wanted = tgt.masked_fill(~is_tgt, -100).flatten()
        loss = F.cross_entropy(output(hidden).flatten(0, 1), wanted, reduction="sum", label_smoothing=SMOOTHING)
        loss.backward()  # type: ignore[no-untyped-call]
        everything.zero_grad()

    return theirs


def limit_step(shape: Shape) -> Callable[[], None]:
    """List every matrix multiplication of a training step and run each as often as the model does."""
    import torch

    from glassformer.config import preset

    size = preset("small", VOCAB)
    n, n_src, n_tgt = shape
    d, ff, heads = size.d_model, size.d_ff, size.n_heads
    counts: Counter[tuple[int, int, int, int]] = Counter()  # (batch, rows, inner, columns), forward

    def layer(rows: int, widths: list[tuple[int, int]], reads: list[tuple[int, int]], times: int) -> None:
        for inner, columns in widths:
            counts[1, rows, inner, columns] += times
        for n_queries, n_keys in reads:
            counts[n * heads, n_queries, d // heads, n_keys] += times
            counts[n * heads, n_queries, n_keys, d // heads] += times

    both = [(d, 3 * d), (d, d), (d, ff), (ff, d)]
    layer(n * n_src, both, [(n_src, n_src)], size.n_encoder_layers)
    layer(n * n_tgt, [*both, (d, d), (d, d)], [(n_tgt, n_tgt), (n_tgt, n_src)], size.n_decoder_layers)
    layer(n * n_src, [(d, 2 * d)], [], size.n_decoder_layers)
    layer(n * n_tgt, [(d, VOCAB)], [], 1)
    jobs = []
    for (b, rows, inner, columns), times in counts.items():
        x, w, g = (torch.randn(b, *s) for s in ((rows, inner), (columns, inner), (rows, columns)))
        for left, right in ((x, w.mT), (g, w), (g.mT, x)):
            jobs.append((left, right, torch.empty(b, left.size(1), right.size(2)), times))

    def run() -> None:
        for left, right, out, times in jobs:
            for _ in range(times):
                torch.bmm(left, right, out=out)

    return run


def work_for(name: str, count: int) -> None:
    """Answer each line on stdin with the seconds that one round took."""
    step = make_step(name, batches(sentence_lengths(), count))
    for _ in range(3):
        for number in range(count):
            step(number)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for number in range(count):
            step(number)
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": time.perf_counter() - start, "rss": rss}), flush=True)


def compare(count: int, rounds: int) -> None:
    """Let the contestants take turns and print their medians as ratios."""
    work = batches(sentence_lengths(), count)
    tokens = sum(map(tokens_in, work))
    padded = sum(n * (s + t) for n, s, t in map(shape_of, work))
    print(f"{count} batches, {tokens} tokens a round, {1 - tokens / padded:.1%} padding, {THREADS} threads")
    names = ("ours", "torch", "torch-kept", "limit")
    workers = {}
    for name in names:
        command = [sys.executable, __file__, "--worker", name, "--batches", str(count)]
        workers[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ask(workers[name])
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            worker = workers[name]
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
            answers[name].append(json.loads(ask(worker)))
    for worker in workers.values():
        worker.communicate()
    speed = {name: tokens / statistics.median(a["seconds"] for a in found) for name, found in answers.items()}
    titles = {
        "ours": "glassformer",
        "torch": "torch.nn.Transformer",
        "torch-kept": "torch.nn.Transformer, large blocks kept",
        "limit": "matrix multiplications alone",
    }
    for name in names:
        rss = answers[name][-1]["rss"]
        print(f"{titles[name]:42s} {speed[name]:7.0f} tokens/s   {rss:6.0f} MB")
    print(f"glassformer / torch.nn.Transformer                    {speed['ours'] / speed['torch']:.2f}")
    print(f"glassformer / torch.nn.Transformer, large blocks kept {speed['ours'] / speed['torch-kept']:.2f}")
    print(f"glassformer / limit                                   {speed['ours'] / speed['limit']:.2f}")


def ask(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline()


def train_one(length: int) -> None:
    """Train once on one pair of `length` tokens and print the peak memory in MB."""
    import torch

    from glassformer.config import preset
    from glassformer.model.transformer import Transformer
    from glassformer.training.loss import cross_entropy

    torch.set_num_threads(THREADS)
    model = Transformer(preset("small", VOCAB, max_positions=length)).train()
    ids = torch.randint(4, VOCAB, (1, length))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    hidden = model.hidden(ids, ids)
    cross_entropy(hidden[0], model.output.weight, None, ids[0], SMOOTHING).backward()  # type: ignore[no-untyped-call]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{length:5d} tokens a side: {after - before:6.0f} MB above the {before:.0f} MB of the model at rest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work_for(args.worker, args.batches)
    elif args.length:
        train_one(args.length)
    elif args.memory:
        for length in (512, 1024, 2048, 4096):
            subprocess.run([sys.executable, __file__, "--length", str(length)], check=True)
    else:
        compare(args.batches, args.rounds)


if __name__ == "__main__":
    main()
