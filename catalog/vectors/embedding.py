"""Text to vectors, with one of two models: one whose weights are in its package, and Amazon Bedrock's.

Vectors have length one, so the dot product of two is their cosine. A text without any word that the model knows
becomes the zero vector, which has similarity 0 to every vector.
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

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import Invalid

Vectors: TypeAlias = npt.NDArray[np.float32]

BUNDLED = "wordllama-256"
BEDROCK = "bedrock:"


class Embedder(Protocol):
    """`name` is stored in the head of every vector table: vectors of two models are never compared."""

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
        nonblank = [position for position, text in enumerate(texts) if text.strip()]
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        if nonblank:
            vectors[nonblank] = self._model.embed([texts[position] for position in nonblank], norm=False)
        return unit(vectors)

    @cached_property
    def _model(self) -> Any:
        # Imported on first use, since its weights are 16 MB. Its import reconfigures the root logger, which is undone.
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        import wordllama

        root.handlers[:] = handlers
        root.setLevel(level)
        package = Path(wordllama.__file__).parent
        return wordllama.WordLlama.load(cache_dir=package, disable_download=True)


class BedrockEmbedder:
    """Amazon Bedrock's text embeddings, one request per text, eight in parallel."""

    def __init__(self, client: Any, model: str, dimensions: int = 512) -> None:
        self._client, self._model = client, model
        self.name, self.dimensions = f"{BEDROCK}{model}", dimensions

    def embed(self, texts: Sequence[str]) -> Vectors:
        with ThreadPoolExecutor(8, thread_name_prefix="embed") as pool:
            return unit(np.array(list(pool.map(self._embed_one, texts)), np.float32).reshape(-1, self.dimensions))

    def _embed_one(self, text: str) -> list[float]:
        if not text.strip():
            return [0.0] * self.dimensions
        body = json.dumps({"inputText": text, "dimensions": self.dimensions, "normalize": True})
        with translate_errors(self.name):
            response = self._client.invoke_model(modelId=self._model, body=body, accept="application/json")
            vector: list[float] = json.loads(response["body"].read())["embedding"]
        return vector


def unit(vectors: Vectors) -> Vectors:
    """Each row divided by its length; a row of length zero, or with NaN or infinity, becomes zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    usable = np.isfinite(lengths) & (lengths > 0)
    return np.where(usable, vectors / np.where(usable, lengths, 1), 0).astype(np.float32)


def embedder_named(name: str, bedrock: Any = None) -> Embedder:
    """The model with this name: `wordllama-256`, or `bedrock:<model id>`, for which `bedrock` makes the client."""
    if name == BUNDLED:
        return WordLlamaEmbedder()
    if name.startswith(BEDROCK) and bedrock is not None:
        return BedrockEmbedder(bedrock(), name.removeprefix(BEDROCK))
    raise Invalid(f"there is no embedding model {name!r}: use {BUNDLED} or {BEDROCK}<model id>", subject=name)
