"""How fast the whole trainer is: tokens per second and memory, beside plain loops around other models.

    GLASSFORMER_DATA=... python benchmarks/train.py                             ours and torch.nn.Transformer
    ... python benchmarks/train.py --hf PYTHON                                  and MarianMT, if PYTHON has transformers
    ... python benchmarks/train.py --peer 'NAME=COMMAND' --peer ...             and any other

Preset `small`, a joint BPE vocabulary of 8,000, Multi30k fr-en, batches of about 4,096 target positions, dropout 0.1,
label smoothing 0.1. A token is a piece or an end mark of either side; padding does not count. Contestants are processes
that take turns: one runs for some seconds while the others are stopped (SIGSTOP), round after round, and the medians of
the rounds are compared. Another contestant is a command that trains the same model and writes a line `<monotonic
seconds> <tokens so far> <updates> <loss>` to the file $BENCH_PROGRESS after each update.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

VOCAB, BATCH_TOKENS, THREADS = 8000, 4096, 2
LR, WARMUP, DROPOUT, SMOOTHING = 1e-3, 60, 0.1, 0.1
PAD, BOS, EOS = 0, 2, 3
WARM = 4  # updates before a contestant's time counts


def prepare(folder: Path) -> None:
    """Learn the vocabulary and write all pairs as ids, for contestants that know nothing of glassformer."""
    from glassformer.config import CorpusConfig, TokenizerConfig
    from glassformer.data.formats import Faults, open_corpus
    from glassformer.text.tokenizer import train_tokenizers

    corpus = CorpusConfig(path=corpus_path("train"))
    pairs = [(pair.src, pair.tgt) for pair in open_corpus(corpus, Faults(), "skip")]
    tokenizers = train_tokenizers(pairs, TokenizerConfig(model="bpe", vocab_size=VOCAB))
    tokenizers.save(folder)
    src, tgt = tokenizers.src.encode_batch([s for s, _ in pairs]), tokenizers.tgt.encode_batch([t for _, t in pairs])
    (folder / "ids.json").write_text(json.dumps([src, tgt]))


def corpus_path(split: str) -> Path:
    name = f"multi30k.{split}.fr-en.tsv" + (".gz" if split == "train" else "")
    path = Path(os.environ.get("GLASSFORMER_DATA", "")) / name
    if not path.exists():
        sys.exit(f"{path} is missing: set GLASSFORMER_DATA to the folder that has {name}")
    return path


def drive_ours(folder: Path) -> None:
    """Run the trainer as a user does and pass on its progress."""
    out = tempfile.mkdtemp(dir=folder)
    words = [
        f"--train={corpus_path('train')}", f"--dev={corpus_path('val')}", f"--out={out}/run", f"--vocabulary={folder}",
        "--preset=small", f"--dropout={DROPOUT}", f"--max-tokens={BATCH_TOKENS}", f"--label-smoothing={SMOOTHING}",
        f"--lr={LR}", f"--warmup={WARMUP}", "--max-updates=100000", "--checkpoint-every=100000",
        "--validate-every=100000", "--log-every=1", f"--threads={THREADS}", "--json-logs",
    ]  # fmt: skip
    command = [sys.executable, "-m", "glassformer", "train", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as trainer:
        assert trainer.stderr is not None
        for line in trainer.stderr:
            entry = json.loads(line)
            if entry["kind"] == "train":
                tell(entry["tokens"], entry["step"], entry["loss"])


def drive_plain(folder: Path, make: str) -> None:
    """Train another model in a plain loop."""
    import torch
    from torch import nn

    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    model, logits_of = torch_model() if make == "torch" else marian_model()
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, betas=(0.9, 0.98), eps=1e-9)
    loss_of = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=SMOOTHING)
    total = 0
    for step, (src, tgt) in enumerate(batches(*json.loads((folder / "ids.json").read_text())), 1):
        x = padded([[*row, EOS] for row in src])
        y = padded([[BOS, *row, EOS] for row in tgt])
        for group in optimizer.param_groups:
            group["lr"] = LR * min(step / WARMUP, math.sqrt(WARMUP / step))
        loss = loss_of(logits_of(x, y[:, :-1]).flatten(0, 1), y[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += int((x != PAD).sum() + (y[:, 1:] != PAD).sum())
        tell(total, step, loss.item())


def torch_model() -> Any:
    import torch
    from torch import nn

    core = nn.Transformer(256, 4, 3, 3, 1024, DROPOUT, batch_first=True)
    table = nn.Embedding(VOCAB, 256)
    nn.init.normal_(table.weight, std=256**-0.5)
    rates = 10_000 ** (-torch.arange(0, 256, 2) / 256)
    angles = torch.arange(512).unsqueeze(1) * rates
    positions = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
    dropout = nn.Dropout(DROPOUT)

    def embed(ids: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = dropout(table(ids) * 16 + positions[: ids.size(1)])
        return embedded

    def logits_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        causal = torch.ones(y.size(1), y.size(1), dtype=torch.bool).triu(1)
        hidden = core(
            embed(x), embed(y), tgt_mask=causal, tgt_is_causal=True, src_key_padding_mask=x == PAD,
            memory_key_padding_mask=x == PAD,
        )  # fmt: skip
        logits: torch.Tensor = hidden @ table.weight.T
        return logits

    return nn.ModuleList([core, table, dropout]), logits_of


def marian_model() -> Any:
    from transformers import MarianConfig, MarianMTModel  # type: ignore[import-not-found, unused-ignore]

    config = MarianConfig(
        vocab_size=VOCAB, d_model=256, max_position_embeddings=512, encoder_layers=3, decoder_layers=3,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024,
        dropout=DROPOUT, attention_dropout=DROPOUT, activation_dropout=0.0, activation_function="relu",
        scale_embedding=True, init_std=1 / 16, share_encoder_decoder_embeddings=True, tie_word_embeddings=True,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS, forced_eos_token_id=None,
    )  # fmt: skip
    model = MarianMTModel(config)

    def logits_of(x: Any, y: Any) -> Any:
        return model(input_ids=x, attention_mask=(x != PAD).long(), decoder_input_ids=y, use_cache=False).logits

    return model, logits_of


def batches(src: list[list[int]], tgt: list[list[int]]) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Group pairs of similar length to about BATCH_TOKENS padded positions of the longer side, for ever."""
    draw = random.Random(0)
    sizes = [max(len(s), len(t)) + 1 for s, t in zip(src, tgt, strict=True)]
    while True:
        groups: list[list[int]] = [[]]
        for i in sorted(range(len(src)), key=lambda i: (sizes[i], len(tgt[i]), draw.random())):
            if (len(groups[-1]) + 1) * sizes[i] > BATCH_TOKENS:
                groups.append([])
            groups[-1].append(i)
        draw.shuffle(groups)
        yield from (([src[i] for i in group], [tgt[i] for i in group]) for group in groups)


def padded(rows: list[list[int]]) -> Any:
    import torch

    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def tell(tokens: int, updates: int, loss: float) -> None:
    with open(os.environ["BENCH_PROGRESS"], "a") as file:
        file.write(f"{time.monotonic()} {tokens} {updates} {loss}\n")


class Contestant:
    """A process in a session of its own, which runs only when it is its turn."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name, self.progress = name, folder / f"{name}.progress"
        self.log = folder / f"{name}.log"
        self.rates: list[float] = []
        names = {"OMP_NUM_THREADS": str(THREADS), "BENCH_PROGRESS": str(self.progress), "BENCH_STOP": os.devnull + "-"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **names}, start_new_session=True
            )

    def lines(self) -> list[list[float]]:
        text = self.progress.read_text() if self.progress.exists() else ""
        return [[float(word) for word in line.split()] for line in text.splitlines() if line.count(" ") == 3]

    def warm_up(self) -> None:
        while len(self.lines()) < WARM:
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended by itself:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.1)
        self.send(signal.SIGSTOP)

    def take_turn(self, seconds: float) -> None:
        """Run for so long; the update that was cut by the pause before it does not count."""
        self.send(signal.SIGCONT)
        start = time.monotonic()
        time.sleep(seconds)
        self.send(signal.SIGSTOP)
        inside = [line for line in self.lines() if line[0] > start]
        if len(inside) > 1:
            self.rates.append((inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0]))

    def send(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def memory(self) -> float:
        """Add up the peak memory of its processes, in MB."""
        total = 0
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(entry.name)) == self.process.pid:
                    peak = next(x for x in (entry / "status").read_text().splitlines() if x.startswith("VmHWM"))
                    total += int(peak.split()[1])
            except (OSError, StopIteration):
                continue
        return total / 1024


def compare(contestants: list[Contestant], seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """Let contestants take turns; print their medians, and give them."""
    for number in range(rounds):
        shift = number % len(contestants)
        for contestant in contestants[shift:] + contestants[:shift]:
            contestant.take_turn(seconds)
    ours = statistics.median(contestants[0].rates)
    facts = {}
    for contestant in contestants:
        rate = statistics.median(contestant.rates)
        spread = f"{min(contestant.rates):.0f} to {max(contestant.rates):.0f}"
        lines = contestant.lines()
        size = statistics.median(b[1] - a[1] for a, b in pairwise(lines))
        print(
            f"{contestant.name:12s} {rate:6.0f} tokens/s ({spread:12s})  {contestant.memory():5.0f} MB  "
            f"{size:5.0f} tokens an update  ours/it {ours / rate:.2f}",
            flush=True,
        )
        facts[contestant.name] = {"tokens_per_s": rate, "mb": contestant.memory()}
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hf", metavar="PYTHON", help="an interpreter that has torch and transformers")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--drive", choices=["glassformer", "torch", "hf"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive == "glassformer":
        return drive_ours(args.folder)
    if args.drive:
        return drive_plain(args.folder, args.drive)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        own = [(n, sys.executable) for n in ("glassformer", "torch")] + ([("hf", args.hf)] if args.hf else [])
        commands = {n: [python, __file__, "--drive", n, "--folder", name] for n, python in own}
        commands |= {n: shlex.split(c) for n, _, c in (peer.partition("=") for peer in args.peer)}
        contestants: list[Contestant] = []
        try:
            for n, command in commands.items():
                contestants.append(Contestant(n, command, folder))
                contestants[-1].warm_up()
            facts = compare(contestants, args.seconds, args.rounds)
            if args.json:
                args.json.write_text(json.dumps(facts))
        finally:
            for contestant in contestants:
                contestant.send(signal.SIGKILL)
                contestant.process.wait()
    return None


if __name__ == "__main__":
    main()
