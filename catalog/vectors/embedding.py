"""Text to vectors. Two models stand behind one seam: one whose weights come with its package, and Bedrock's.

Vectors have length one, so the dot product of two is their cosine. A text with nothing in it that the model knows
becomes the zero vector, which is like nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from catalog.errors import Invalid
from catalog.timeline.away import explained

Vectors: TypeAlias = npt.NDArray[np.float32]

BUNDLED = "wordllama-256"
BEDROCK = "bedrock:"


class Embedder(Protocol):
    """`name` is kept with every vector table: vectors of two models are never compared."""

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text, each of length one or zero."""
        ...


class WordLlamaEmbedder:
    """Static word embeddings, 256 dimensions, weights in the wheel: no download, no torch, thousands a second."""

    name = BUNDLED
    dimensions = 256

    def embed(self, texts: Sequence[str]) -> Vectors:
        known = [number for number, text in enumerate(texts) if text.strip()]
        found = np.zeros((len(texts), self.dimensions), np.float32)
        if known:
            found[known] = self._model.embed([texts[number] for number in known], norm=False)
        return unit(found)

    @cached_property
    def _model(self) -> Any:
        # Imported here, not with the module: its weights are 16 MB. It also makes itself heard on the root logger.
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        import wordllama

        root.handlers[:] = handlers
        root.setLevel(level)
        here = Path(wordllama.__file__).parent
        return wordllama.WordLlama.load(cache_dir=here, disable_download=True)


class BedrockEmbedder:
    """Amazon Bedrock's text embeddings, one request per text, eight at a time."""

    def __init__(self, client: Any, model: str, dimensions: int = 512) -> None:
        self._client, self._model = client, model
        self.name, self.dimensions = f"{BEDROCK}{model}", dimensions

    def embed(self, texts: Sequence[str]) -> Vectors:
        with ThreadPoolExecutor(8, thread_name_prefix="embed") as pool:
            return unit(np.array(list(pool.map(self._one, texts)), np.float32).reshape(-1, self.dimensions))

    def _one(self, text: str) -> list[float]:
        if not text.strip():
            return [0.0] * self.dimensions
        body = json.dumps({"inputText": text, "dimensions": self.dimensions, "normalize": True})
        with explained(self.name):
            answer = self._client.invoke_model(modelId=self._model, body=body, accept="application/json")
            found: list[float] = json.loads(answer["body"].read())["embedding"]
        return found


def unit(vectors: Vectors) -> Vectors:
    """Each row divided by its length; what has none, or is no number, becomes zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    usable = np.isfinite(lengths) & (lengths > 0)
    return np.where(usable, vectors / np.where(usable, lengths, 1), 0).astype(np.float32)


def embedder_named(name: str, bedrock: Any = None) -> Embedder:
    """The model of that name: `wordllama-256`, or `bedrock:<model id>` with a client for it."""
    if name == BUNDLED:
        return WordLlamaEmbedder()
    if name.startswith(BEDROCK) and bedrock is not None:
        return BedrockEmbedder(bedrock(), name.removeprefix(BEDROCK))
    raise Invalid(f"there is no embedding model {name!r}: use {BUNDLED} or {BEDROCK}<model id>", subject=name)
