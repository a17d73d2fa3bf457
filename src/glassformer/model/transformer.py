"""The whole model: ids of a source and of a target prefix in, logits of each next target token out.

B batch, S source length, T target length, D model width, V vocabulary, N = B * W prefixes.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.attention import MultiHeadAttention
from glassformer.model.decoder import Decoder
from glassformer.model.encoder import Encoder
from glassformer.model.layers import Embedding, LayerNorm, Output
from glassformer.model.scope import BLIND, Scope
from glassformer.model.state import DecoderState, Memory
from glassformer.text.vocab import SPECIAL


class Transformer(nn.Module):
    """The encoder-decoder of "Attention Is All You Need" (Vaswani et al. 2017, Figure 1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.d_model
        source = nn.Parameter(torch.empty(config.src_vocab, width))
        shared = config.tie in ("all", "embeddings")
        target = source if shared else nn.Parameter(torch.empty(config.tgt_vocab, width))
        tied = config.tie in ("all", "target")
        self.src_embedding = Embedding(config, source)
        self.tgt_embedding = Embedding(config, target)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output = Output(config, target if tied else nn.Parameter(torch.empty(config.tgt_vocab, width)))
        self.initialise()

    @property
    def start_id(self) -> int:
        """The id that the decoder reads first."""
        return SPECIAL[self.config.start_token]

    def count_parameters(self) -> dict[str, int]:
        """Count the parameters of each part; a shared table counts where it is first used."""
        counts: Counter[str] = Counter()
        for name, parameter in self.named_parameters():
            counts[name.split(".")[0]] += parameter.numel()
        return dict(counts)

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw all weights anew.

        Matrices are uniform (Glorot and Bengio 2010), with fan-in and fan-out of each of
        W_Q, W_K, W_V by itself and, for these three, the gain 1/sqrt(2) of fairseq (Ott et al. 2019);
        biases are 0, norms start with gamma 1 and beta 0. Embedding rows are normal with variance 1/D
        (tensor2tensor, Vaswani et al. 2018), so that a row times sqrt(D) and a logit both have variance
        near 1. Post-norm stacks of the paper's depth train from here with its warm-up and nothing else.
        """
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                for part in module.projection.weight.chunk(3):
                    nn.init.xavier_uniform_(part, gain=2**-0.5)
            if isinstance(module, nn.Linear | Output) and module.bias is not None:
                nn.init.zeros_(module.bias)
            if isinstance(module, LayerNorm):
                nn.init.ones_(module.gamma)
                nn.init.zeros_(module.beta)
        tables: list[Tensor] = [self.src_embedding.table, self.tgt_embedding.table, self.output.weight]
        tables += [e.positions.table for e in (self.src_embedding, self.tgt_embedding) if e.positions is not None]
        for table in tables:
            if isinstance(table, nn.Parameter):
                nn.init.normal_(table, std=self.config.d_model**-0.5)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """Return the logits (B, T, V) after each token of `tgt` (B, T), both sides padded on the right."""
        return self.decode(tgt, self.encode(src, src_mask))

    def hidden(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """Return the decoder's last layer (B, T, D), for a loss that computes logits in chunks."""
        return self.read(tgt, self.start(self.encode(src, src_mask)))[0]

    def encode(self, src: Tensor, src_mask: Tensor | None = None, scope: Scope = BLIND) -> Memory:
        """Encode sources (B, S); `src_mask` (B, S) is True for tokens, None if nothing is padded."""
        scope = scope.side("enc", "src")
        allowed = None if src_mask is None else src_mask[:, None, None, :]  # (B, 1, 1, S)
        return Memory(self.encoder(self.src_embedding(src, scope=scope), allowed, scope), allowed)

    def decode(self, tgt: Tensor, memory: Memory, scope: Scope = BLIND) -> Tensor:
        """Return the logits (B, T, V) after each token of whole targets (B, T), padded on the right."""
        return self.step(tgt, self.start(memory, scope), scope)[0]

    def start(self, memory: Memory, scope: Scope = BLIND) -> DecoderState:
        """Return the state of a decoder that has read no token yet."""
        return self.decoder.start(memory, scope.side("dec", "tgt"))

    def step(self, tokens: Tensor, state: DecoderState, scope: Scope = BLIND) -> tuple[Tensor, DecoderState]:
        """Read the next tokens (N, T), one or several, and return the logits (N, T, V) after each."""
        hidden, state = self.read(tokens, state, scope)
        return self.output(hidden, scope.side("out", "tgt")), state

    def read(self, tokens: Tensor, state: DecoderState, scope: Scope = BLIND) -> tuple[Tensor, DecoderState]:
        """Read the next tokens (N, T) and return the decoder's last layer (N, T, D)."""
        scope = scope.side("dec", "tgt")
        hidden, state = self.decoder(self.tgt_embedding(tokens, state.length, scope), state, scope)
        return hidden, state
