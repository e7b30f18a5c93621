"""The published timeline (C2SP tlog-tiles): public, and cacheable where it never changes. Entries may need a token."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from botocore.exceptions import ClientError

from catalog import NotFound
from catalog.core.aws_errors import is_missing, translate_errors
from catalog.merkle.tiles import WIDTH, Tile
from catalog.merkle.verify import ProofError
from catalog.timeline import (
    CACHE_BRIEFLY,
    CACHE_IMMUTABLE,
    CACHE_NEVER,
    CHECKPOINT_PATH,
    KEYS_PATH,
    TIMELINE_PREFIX,
    Keyring,
)
from functions.api.app import BYTES, JSON, TEXT, caller, lake, respond_cacheable, serve
from functions.api.models import ConsistencyOut

TilePath = Annotated[str, Path(max_length=64, description="`x001/x234/067`, or `067.p/9` for a partial one")]
Size = Query(ge=1, lt=2**53)


@serve("GET /timeline/checkpoint", {200: {"text/plain": None}, 304: {}}, problems=(404,), tag="timeline")
def read_checkpoint() -> Response[Any]:
    """The newest checkpoint: a signed note, as it was published."""
    return respond_cacheable(_published(CHECKPOINT_PATH).decode(), TEXT, CACHE_NEVER)


@serve("GET /timeline/key", {200: {"text/plain": None}, 304: {}}, problems=(404, 422), tag="timeline")
def read_key() -> Response[Any]:
    """The keys that sign checkpoints, one `name+id+key` per line, the newest first. Do not trust them by this."""
    keys = [str(key) for _, key in reversed(Keyring.stored(_published(KEYS_PATH)).keys)]
    return respond_cacheable("".join(f"{key}\n" for key in keys), TEXT, CACHE_NEVER)


@serve("GET /timeline/consistency", {200: {JSON: ConsistencyOut}}, problems=(404, 422), tag="timeline")
def prove_consistency(old: Annotated[int, Size], new: Annotated[int | None, Size] = None) -> Response[Any]:
    """The proof that the timeline of a signed checkpoint extends that of an older one."""
    proof = lake().timeline.consistency(old, new)
    shown = ConsistencyOut(
        old_size=proof.old.checkpoint.size,
        new_size=proof.new.checkpoint.size,
        old_checkpoint=proof.old.note.decode(),
        new_checkpoint=proof.new.note.decode(),
        hashes=[base64.b64encode(value).decode() for value in proof.hashes],
    )
    return respond_cacheable(shown.model_dump_json(), JSON, CACHE_NEVER)


@serve("GET /timeline/tile/entries/{path+}", {200: {BYTES: None}, 304: {}}, problems=(403, 404), tag="timeline")
def read_entries(path: TilePath) -> Response[Any]:
    """An entry bundle: 256 leaves.

    They name tables, with their counts and times. On a stage with `public_entries` anybody may read them; otherwise a
    caller needs a token with a role on every table, such as `reader:*`.
    """
    if not lake().settings.public_entries:
        caller().require_every_table("read the timeline's entries, which name every table")
        return _tile(f"tile/entries/{path}", "private")
    return _tile(f"tile/entries/{path}")


@serve("GET /timeline/tile/{level}/{path+}", {200: {BYTES: None}, 304: {}}, problems=(404,), tag="timeline")
def read_tile(level: Annotated[str, Path(pattern=r"^[0-9]{1,2}$")], path: TilePath) -> Response[Any]:
    """A tile: 256 hashes of one level."""
    return _tile(f"tile/{level}/{path}")


def _tile(path: str, cached: Literal["public", "private"] = "public") -> Response[Any]:
    try:
        tile = Tile.parse(path)
    except (ProofError, ValueError):
        raise NotFound(f"{path!r} is not the path of a tile", subject=path) from None
    content = _published(TIMELINE_PREFIX + path)
    cache_control = CACHE_IMMUTABLE if tile.width == WIDTH else CACHE_BRIEFLY
    return respond_cacheable(content, BYTES, cache_control.replace("public", cached))


def _published(key: str) -> bytes:
    """A published object, with one GET. A partial tile may be deleted once the full one exists (tlog-tiles)."""
    with translate_errors(key):
        try:
            data: bytes = lake().s3.get_object(Bucket=lake().settings.bucket, Key=key)["Body"].read()
        except ClientError as error:
            if not is_missing(error):
                raise
            raise NotFound(f"{key} is not published", subject=key) from None
        return data
