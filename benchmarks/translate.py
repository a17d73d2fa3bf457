"""How fast translation is: sentences per second, latency of one sentence, and memory, beside other engines.

    GLASSFORMER_DATA=... python benchmarks/translate.py                        both engines, and CTranslate2 called bare
    ... python benchmarks/translate.py --hf PYTHON                             and MarianMT with the same weights
    ... python benchmarks/translate.py --peer 'NAME=COMMAND'                   and any other
    python benchmarks/translate.py --model FOLDER --text FILE                  a model and sentences of your own, which
                                                                               end when they end; text in, text out
    ... --model FOLDER --text FILE --other FOLDER                              and another model in CTranslate2, bare
    ... python benchmarks/translate.py --lengths                               time by the length of the source
    ... python benchmarks/translate.py --lines 1000000                         memory over a long file

1,000 sentences of Multi30k fr-en (test2016), a model of preset `small` with a vocabulary of 8,000. Its weights are
random, so that nothing ends early: every contestant writes 16 tokens for each sentence, in batches of 64 sentences
sorted by length, on two threads (our torch engine chooses its batches itself; `torch-64` has at most 64 in each).
`text` and `bare` without a shape take what the probe of this machine chooses, batches included.
Workers stay loaded and are asked in turn, round after round; medians are compared.
Another contestant is a command that prints `RESULT {"ready": true}` and then answers JSON lines with `mode` throughput
or latency, `beam`, `batch` and `n` by `RESULT {"seconds": .., "sentences": .., "rss_mb": ..}` or `RESULT {"ms": [..]}`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TOKENS, VOCAB, THREADS = 16, 8000, 2
Translate = Callable[[list[list[int]], int, int], int]  # sources, beam, batch -> sentences translated


def prepare(folder: Path) -> None:
    """Make a model of random weights, its vocabulary, and the test sentences as ids and as text."""
    import torch

    from glassformer.config import CorpusConfig, TokenizerConfig, preset
    from glassformer.data.formats import Faults, open_corpus
    from glassformer.model.transformer import Transformer
    from glassformer.store.folder import save_model
    from glassformer.text.tokenizer import train_tokenizers

    data = Path(os.environ.get("GLASSFORMER_DATA", ""))
    names = [data / "multi30k.train.fr-en.tsv.gz", data / "multi30k.test2016.fr-en.tsv"]
    for name in names:
        if not name.exists():
            sys.exit(f"{name} is missing: set GLASSFORMER_DATA to the folder that has it")
    train, test = ([*open_corpus(CorpusConfig(path=name), Faults(), "skip")] for name in names)
    tokenizers = train_tokenizers(
        ((pair.src, pair.tgt) for pair in train), TokenizerConfig(model="bpe", vocab_size=VOCAB)
    )
    torch.manual_seed(1)
    save_model(Transformer(preset("small", VOCAB, positions="halves")), folder)  # the layout of Marian
    tokenizers.save(folder)
    texts = [pair.src for pair in test]
    (folder / "sources.json").write_text(json.dumps(tokenizers.src.encode_batch(texts)))
    (folder / "texts.json").write_text(json.dumps(texts))


def adopt(folder: Path, model: Path, text: Path) -> None:
    """Take a trained model and sentences of its language instead."""
    from glassformer.store.folder import CONFIG, EXAMPLES, WEIGHTS
    from glassformer.text.tokenizer import Tokenizers

    for path in model.iterdir():
        if path.suffix == ".model" or path.name in (CONFIG, WEIGHTS, EXAMPLES):
            shutil.copy(path, folder)
    texts = text.read_text(encoding="utf-8").splitlines()[:1000]
    (folder / "texts.json").write_text(json.dumps(texts))
    (folder / "sources.json").write_text(json.dumps(Tokenizers.load(folder).src.encode_batch(texts)))
    (folder / "free").touch()


def longest(folder: Path) -> int:
    """How many tokens a translation may have: 16 of random weights, and as many as it takes of trained ones."""
    return 100 if (folder / "free").exists() else TOKENS


def make_engine(name: str, folder: Path) -> Translate:
    """Load one of our engines; token ids in, token ids out."""
    import torch

    from glassformer.config import SearchConfig
    from glassformer.model.fast.device import keep_large_blocks
    from glassformer.store.folder import load_model
    from glassformer.translate.engines.engine import Engine, Request, Source
    from glassformer.translate.engines.probe import load_engine
    from glassformer.translate.engines.torch import TorchEngine

    torch.set_num_threads(THREADS)
    keep_large_blocks()  # as a Translator does
    ours = name.split("-")[0] == "torch"
    engine: Engine = TorchEngine([load_model(folder)]) if ours else load_engine(folder, setup_of(name))
    most = longest(folder)

    def translate(sources: list[list[int]], beam: int, batch: int) -> int:
        if name == "torch-64" and isinstance(engine, TorchEngine):  # sources come sorted
            engine.max_tokens = batch * beam * (len(sources[0]) + 1)
        request = Request(SearchConfig(width=beam, max_length=most))
        found = [*engine.translate([Source(source) for source in sources], request)]
        assert most > TOKENS or all(len(hypotheses[0].tokens) == TOKENS for _, hypotheses in found)
        return len(found)

    return translate


def make_text(name: str, folder: Path) -> Translate:
    """Load a Translator: text in, text out, splitting and tokenizing included."""
    from glassformer.config import SearchConfig
    from glassformer.store.folder import load_model
    from glassformer.text.tokenizer import Tokenizers
    from glassformer.translate.engines.probe import load_engine
    from glassformer.translate.engines.torch import TorchEngine
    from glassformer.translate.translator import Translator

    assert longest(folder) > TOKENS, "random weights go in circles, which a Translator does not put up with"
    engine, fallback = load_engine(folder, setup_of(name)), lambda: TorchEngine([load_model(folder)])
    translator = Translator(engine, Tokenizers.load(folder), fallback=fallback)
    sources, texts = (json.loads((folder / f"{kind}.json").read_text()) for kind in ("sources", "texts"))
    text_of = {tuple(source): text for source, text in zip(sources, texts, strict=True)}

    def translate(sources: list[list[int]], beam: int, batch: int) -> int:
        search = SearchConfig(width=beam, max_length=longest(folder))
        return len(translator.translate([text_of[tuple(source)] for source in sources], search=search))

    return translate


def setup_of(name: str) -> Any:
    """Read `...-float32-1x2`: how CTranslate2 computes, workers, threads of each; None lets the probe say."""
    from glassformer.translate.engines.ctranslate2 import Setup

    if name.count("-") < 2:
        return None
    _, kind, shape = name.split("-")
    workers, threads = map(int, shape.split("x"))
    return Setup("int8" if kind == "int8" else "float32", workers, threads)


def make_bare(name: str, folder: Path) -> Translate:
    """Load the same export into CTranslate2 without anything of ours around it."""
    import ctranslate2

    from glassformer.convert.ctranslate2 import vocabulary
    from glassformer.store.folder import read_config
    from glassformer.text.tokenizer import Tokenizers
    from glassformer.translate.engines.probe import choose_setup, load_cached_export

    given = setup_of(name)
    setup = given or choose_setup(folder)
    model = ctranslate2.Translator(
        str(load_cached_export(folder, setup.quantization)),
        compute_type=setup.quantization,
        inter_threads=setup.workers,
        intra_threads=setup.threads,
    )
    pieces = vocabulary(Tokenizers.load(folder).src, read_config(folder).model.src_vocab)
    most = longest(folder)

    def translate(sources: list[list[int]], beam: int, batch: int) -> int:
        rows = [[pieces[i] for i in source] for source in sources]
        size = batch if given else setup.batch
        found = model.translate_batch(rows, beam_size=beam, max_batch_size=size, max_decoding_length=most)
        assert most > TOKENS or all(len(result.hypotheses[0]) == TOKENS for result in found)
        return len(found)

    return translate


def make_hf(name: str, folder: Path) -> Translate:
    """Load the same weights into MarianMT."""
    import torch
    from safetensors.torch import load_file
    from transformers import MarianConfig, MarianMTModel  # type: ignore[import-not-found, unused-ignore]

    torch.set_num_threads(THREADS)
    config = MarianConfig(
        vocab_size=VOCAB, d_model=256, max_position_embeddings=512, encoder_layers=3, decoder_layers=3,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024,
        activation_function="relu", scale_embedding=True, share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True, pad_token_id=0, bos_token_id=2, eos_token_id=3, decoder_start_token_id=2,
        forced_eos_token_id=None,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    model.load_state_dict(dict(_marian(load_file(folder / "model.safetensors"))), strict=False)

    def translate(sources: list[list[int]], beam: int, batch: int) -> int:
        count = 0
        for start in range(0, len(sources), batch):
            rows = [[*source, 3] for source in sources[start : start + batch]]
            longest = max(map(len, rows))
            ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
            with torch.inference_mode():
                found = model.generate(
                    ids, attention_mask=(ids != 0).long(), num_beams=beam, do_sample=False, max_new_tokens=TOKENS
                )
            count += len(found)
        return count

    return translate


def _marian(weights: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Rename our weights as MarianMT has them."""
    norms = {"around_self": "self_attn_layer_norm", "around_cross": "encoder_attn_layer_norm"}
    for name, tensor in weights.items():
        if name == "src_embedding.table":
            for place in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
                yield f"{place}.weight", tensor
            continue
        side, _, layer, part, *rest, kind = name.split(".")
        place = f"model.{side}.layers.{layer}"
        if part in ("self_attention", "cross_attention"):
            attention = f"{place}.{'self_attn' if part == 'self_attention' else 'encoder_attn'}"
            if rest == ["projection"]:
                for letter, piece in zip("qkv", tensor.chunk(3), strict=True):
                    yield f"{attention}.{letter}_proj.{kind}", piece
            else:
                yield f"{attention}.out_proj.{kind}", tensor
        elif part == "feed_forward":
            yield f"{place}.{'fc1' if rest == ['hidden'] else 'fc2'}.{kind}", tensor
        else:
            yield f"{place}.{norms.get(part, 'final_layer_norm')}.{'weight' if kind == 'gamma' else 'bias'}", tensor


MAKERS = {"torch": make_engine, "ctranslate2": make_engine, "text": make_text, "bare": make_bare, "hf": make_hf}


def serve(name: str, folder: Path) -> None:
    """Be a worker: answer each line on stdin."""
    translate = MAKERS[name.split("-")[0]](name, folder)
    sources: list[list[int]] = json.loads((folder / "sources.json").read_text())
    answer({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        beam, batch, n = order["beam"], order.get("batch", 64), order.get("n", 128)
        if order["mode"] == "latency":
            times = []
            for source in sources[:n]:
                start = time.perf_counter()
                translate([source], beam, 1)
                times.append(1e3 * (time.perf_counter() - start))
            answer({"ms": times})
            continue
        some = sorted(sources[:: -(-len(sources) // n)], key=len, reverse=True)
        start = time.perf_counter()
        count = translate(some, beam, batch)
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer({"seconds": time.perf_counter() - start, "sentences": count, "rss_mb": rss})


def answer(facts: dict[str, Any]) -> None:
    print(f"RESULT {json.dumps(facts)}", flush=True)


class Worker:
    """A contestant, loaded and waiting."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "BENCH_FIXED": str(TOKENS)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.read()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("RESULT "):
                found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
                return found
        sys.exit(f"{self.name} ended by itself")

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self.read()


def compare(workers: list[Worker], rounds: int, n: int, n_latency: int) -> dict[str, dict[str, dict[str, float]]]:
    """Ask all in turn; print medians, and give them by beam and contestant."""
    facts: dict[str, dict[str, dict[str, float]]] = {}
    for beam in (1, 5):
        rates: dict[str, list[float]] = {worker.name: [] for worker in workers}
        delays: dict[str, list[list[float]]] = {worker.name: [] for worker in workers}
        memory: dict[str, float] = {}
        for worker in workers:
            worker.ask(mode="throughput", beam=beam, batch=64, n=64)
            worker.ask(mode="latency", beam=beam, n=3)
        for number in range(rounds):
            shift = number % len(workers)
            for worker in workers[shift:] + workers[:shift]:
                found = worker.ask(mode="throughput", beam=beam, batch=64, n=n)
                rates[worker.name].append(found["sentences"] / found["seconds"])
                memory[worker.name] = found["rss_mb"]
                delays[worker.name].append(sorted(worker.ask(mode="latency", beam=beam, n=n_latency)["ms"]))
        print(f"beam {beam}".ljust(26) + "sentences/s  tokens/s   ms median   ms p95      MB", flush=True)
        for worker in workers:
            rate = statistics.median(rates[worker.name])
            middle = statistics.median(statistics.median(ms) for ms in delays[worker.name])
            high = statistics.median(ms[int(0.95 * (len(ms) - 1))] for ms in delays[worker.name])
            numbers = f"{rate:11.1f}{rate * TOKENS:10.0f}{middle:12.1f}{high:9.1f}{memory[worker.name]:8.0f}"
            print(f"{worker.name:26s}{numbers}", flush=True)
            own = {"sentences_per_s": rate, "ms": middle, "ms_p95": high, "mb": memory[worker.name]}
            facts.setdefault(str(beam), {})[worker.name] = own
    return facts


def by_length(folder: Path) -> None:
    """Print the time of a step for sources of 8 to 512 tokens: only attention to the source grows."""
    translate = make_engine("torch", folder)
    flat = [token for source in json.loads((folder / "sources.json").read_text()) for token in source]
    for beam in (1, 5):
        for length in (8, 16, 32, 64, 128, 256, 512):
            sources = [flat[i * length : (i + 1) * length] for i in range(8)]
            translate(sources[:2], beam, 8)
            start = time.perf_counter()
            for source in sources:
                translate([source], beam, 1)
            print(
                f"beam {beam}, {length:4d} source tokens: {(time.perf_counter() - start) / 8 * 1e3:7.1f} ms a sentence"
            )


def over_lines(folder: Path, count: int) -> dict[str, float]:
    """Stream a file of so many lines through the command; print the memory it took, and give it."""
    texts = json.loads((folder / "texts.json").read_text())
    source = folder / "many.txt"
    with source.open("w", encoding="utf-8") as file:
        file.writelines(f"{texts[i % len(texts)].split()[0]}\n" for i in range(count))
    command = [
        sys.executable, "-m", "glassformer", "translate", str(folder), "--input", str(source), "--output",
        str(folder / "out.txt"), "--beam", "1", "--search", "max_length=4",
    ]  # fmt: skip
    start = time.perf_counter()
    subprocess.run(command, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    seconds = time.perf_counter() - start
    print(f"{count} lines in {seconds:.0f} s, {peak:.0f} MB at most")
    return {"lines": count, "seconds": seconds, "mb": peak}


def write(path: Path | None, facts: Any) -> None:
    if path:
        path.write_text(json.dumps(facts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hf", metavar="PYTHON", help="an interpreter that has torch and transformers")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument(
        "--only", nargs="+", help="some of ours: torch, text, bare-float32-1x2, ctranslate2-int8-2x1, .."
    )
    parser.add_argument("--model", type=Path, help="a model folder; --text has its sentences")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--other", type=Path, help="another model folder, for the same sentences")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--n", type=int, default=1000, help="sentences of a round")
    parser.add_argument("--latency", type=int, default=30, help="sentences of a round, one by one")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--lengths", action="store_true")
    parser.add_argument("--lines", type=int)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return serve(args.worker, args.folder)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.model:
            adopt(folder, args.model, args.text)
        else:
            prepare(folder)
        if args.lengths:
            return by_length(folder)
        if args.lines:
            return write(args.json, over_lines(folder, args.lines))
        shapes = [f"float32-1x{THREADS}", f"float32-{THREADS}x1", f"int8-{THREADS}x1"]
        ours = "text" if args.model else "ctranslate2"
        default = ["torch", "torch-64", *(f"{kind}-{shape}" for shape in shapes for kind in (ours, "bare"))]
        own = [(n, sys.executable) for n in args.only or default] + ([("hf", args.hf)] if args.hf else [])
        commands = {n: [python, __file__, "--worker", n, "--folder", name] for n, python in own}
        if args.other:
            other = folder / "other"
            other.mkdir()
            adopt(other, args.other, args.text)
            for n in ("bare", f"bare-float32-{THREADS}x1"):
                commands[f"other {n}"] = [sys.executable, __file__, "--worker", n, "--folder", str(other)]
        commands |= {n: shlex.split(command) for n, _, command in (peer.partition("=") for peer in args.peer)}
        workers: list[Worker] = []
        try:
            for n, command in commands.items():
                workers.append(Worker(n, command))
            write(args.json, compare(workers, args.rounds, args.n, args.latency))
        finally:
            for worker in workers:
                worker.process.kill()
    return None


if __name__ == "__main__":
    main()
