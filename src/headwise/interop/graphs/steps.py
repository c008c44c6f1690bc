"""The graphs of models that generate: an encoder, if there is one, the first step, which reads a whole prompt, and a
step that takes and gives the KV cache.

Letters: R rows, T length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.stream import Context, Stream
from headwise.interop.graphs.cache import TensorCache
from headwise.interop.graphs.graph import Graph, Tensors
from headwise.models.generative import GenerativeModel

LENGTHS = (3, 5, 1)  # of the prompts of the examples
NEW = "new."  # before the name of a tensor that a step gives in the place of one that it takes
Sources = Sequence[Tensor]  # random inputs of the encoder, or prompts, of different sizes


def list_step_graphs(model: GenerativeModel, sources: Sources) -> list[Graph]:
    """The graphs `encoder` (of an encoder-decoder), `first` and `step`. Their examples follow each other: what one
    gives, the next takes."""
    encoder: Any = getattr(model, "encoder", None)
    graphs: list[Graph] = []
    memories: list[dict[str, Tensor]] = [{} for _ in sources]
    streams: dict[str, Stream] = {}
    if encoder is not None:
        with torch.no_grad():
            streams = encoder.read(sources[0])
        examples = tuple({"source": source} for source in sources)
        graphs.append(Graph("encoder", Memory(encoder, streams), examples, tuple(name_memory(streams))))
        memories = [graphs[0].run(example) for example in examples]
    prompts = [draw_prompt(model, len(source), length) for source, length in zip(sources, LENGTHS, strict=True)]
    first = FirstStep(model, streams)
    examples = tuple({"ids": ids, **memory} for ids, memory in zip(prompts, memories, strict=True))
    given = [first.list_outputs(example) for example in examples]
    graphs.append(Graph("first", first.bind(examples[0]), examples, tuple(given[0])))
    taken = tuple(
        {
            "ids": ids[:, -1:],
            "position": torch.tensor([ids.shape[1] + first.prefix]),
            **memory,
            **{name: value for name, value in outputs.items() if name != "logits"},
        }
        for ids, memory, outputs in zip(prompts, memories, given, strict=True)
    )
    step = NextStep(model, streams)
    outputs = tuple(NEW + name if name in taken[0] else name for name in step.list_outputs(taken[0]))
    graphs.append(Graph("step", step.bind(taken[0]), taken, outputs))
    return graphs


def draw_prompt(model: GenerativeModel, rows: int, length: int) -> Tensor:
    """Random ids (R, T) after the start token."""
    ids = torch.randint(model.vocab, (rows, length), generator=torch.Generator().manual_seed(rows))
    ids[:, 0] = model.start_id
    return ids


def name_memory(streams: Mapping[str, Stream]) -> list[str]:
    """The names of the tensors of a decoder's memory."""
    return [
        f"memory.{name}.{part}"
        for name, stream in streams.items()
        for part in ("x", "keep")
        if part == "x" or stream.keep is not None
    ]


class Memory(nn.Module):
    """What an encoder gives to the decoder: vectors and padding masks."""

    def __init__(self, encoder: Any, streams: Mapping[str, Stream]):
        super().__init__()
        self.encoder, self.names = encoder, name_memory(streams)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        streams = self.encoder.read(inputs[0])
        return tuple(getattr(streams[name.split(".")[1]], name.split(".")[2]) for name in self.names)


class DecoderStep(nn.Module):
    """Base of both steps: a function from named tensors to logits and the cache."""

    def __init__(self, model: GenerativeModel, streams: Mapping[str, Stream]):
        super().__init__()
        self.decoder, self.streams = model.decoder, dict(streams)
        self.limit = getattr(model, "memory_length", 0)
        self.prefix = 0 if model.decoder.prefix_id is None else 1
        self.names: tuple[str, ...] = ()

    def bind(self, example: Tensors) -> DecoderStep:
        """The step with inputs in this order."""
        self.names = tuple(example)
        return self

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.list_outputs(dict(zip(self.names, inputs, strict=True))).values())

    def list_outputs(self, inputs: Tensors) -> dict[str, Tensor]:
        """Logits (R, V) of the next tokens, and what of the cache has changed."""
        with torch.no_grad():
            cache = TensorCache(
                {name: value for name, value in inputs.items() if name.startswith("cache.")}, self.limit
            )
            x = self.decoder.stack(self.embed(inputs), Context(self.read_memory(inputs), cache).at("decoder")).x
            return {"logits": self.decoder.head(x[:, -1]), **cache.after}

    def embed(self, inputs: Tensors) -> Stream:
        """The new tokens."""
        raise NotImplementedError

    def read_memory(self, inputs: Tensors) -> dict[str, Stream]:
        """The memory of the inputs; the grid of an image is that of the example."""
        memory = {}
        for name, stream in self.streams.items():
            x, keep = inputs[f"memory.{name}.x"], inputs.get(f"memory.{name}.keep")
            pos = torch.arange(x.shape[1], device=x.device)
            memory[name] = replace(stream, x=x, keep=keep, pos=pos)
        return memory


class FirstStep(DecoderStep):
    """The first step: it reads the ids (R, T) of a prompt, and leaves the cache."""

    def embed(self, inputs: Tensors) -> Stream:
        ids, prefix_id = inputs["ids"], self.decoder.prefix_id
        stream: Stream = self.decoder.embed(ids if prefix_id is None else F.pad(ids, (1, 0), value=prefix_id))
        return stream


class NextStep(DecoderStep):
    """A step: one token of each row, (R, 1), at a position (1,), after those of the cache."""

    def embed(self, inputs: Tensors) -> Stream:
        stream: Stream = self.decoder.embed(inputs["ids"], pos=inputs["position"])
        return stream
