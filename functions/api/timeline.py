"""The timeline's public form (C2SP tlog-tiles): no token, and every cache may keep what never changes."""

from __future__ import annotations

import base64
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from botocore.exceptions import ClientError

from catalog.errors import NotFound
from catalog.merkle.tiles import WIDTH, Tile
from catalog.merkle.verify import ProofError
from catalog.timeline.away import explained
from catalog.timeline.keyring import Keyring
from catalog.timeline.publish import CHECKPOINT, FOR_A_WHILE, FOR_EVER, FRESH, KEYS, PREFIX
from functions.api.app import BYTES, JSON, TEXT, lake, serve, unchanging
from functions.api.models import ConsistencyOut

TilePath = Annotated[str, Path(max_length=64, description="`x001/x234/067`, or `067.p/9` for a partial one")]
Size = Query(ge=1, lt=2**53)


@serve("GET /timeline/checkpoint", {200: {"text/plain": None}, 304: {}}, problems=(404,), tag="timeline")
def read_checkpoint() -> Response[Any]:
    """The newest checkpoint: a signed note, as it was published."""
    return unchanging(_published(CHECKPOINT).decode(), TEXT, FRESH)


@serve("GET /timeline/key", {200: {"text/plain": None}, 304: {}}, problems=(404, 422), tag="timeline")
def read_key() -> Response[Any]:
    """The keys that sign checkpoints, `name+id+key` a line, the newest first. Whom to trust, know from elsewhere."""
    keys = [str(key) for _, key in reversed(Keyring.parse(_published(KEYS)).keys)]
    return unchanging("".join(f"{key}\n" for key in keys), TEXT, FRESH)


@serve("GET /timeline/consistency", {200: {JSON: ConsistencyOut}}, problems=(404, 422), tag="timeline")
def prove_consistency(old: Annotated[int, Size], new: Annotated[int | None, Size] = None) -> Response[Any]:
    """That the timeline of one signed checkpoint only added to that of an older one."""
    found = lake().timeline.consistency(old, new)
    shown = ConsistencyOut(
        old_size=found.old.checkpoint.size,
        new_size=found.new.checkpoint.size,
        old_checkpoint=found.old.note.decode(),
        new_checkpoint=found.new.note.decode(),
        hashes=[base64.b64encode(value).decode() for value in found.hashes],
    )
    return unchanging(shown.model_dump_json(), JSON, FRESH)


@serve("GET /timeline/tile/entries/{path+}", {200: {BYTES: None}, 304: {}}, problems=(404,), tag="timeline")
def read_entries(path: TilePath) -> Response[Any]:
    """A bundle of leaves."""
    return _tile(f"tile/entries/{path}")


@serve("GET /timeline/tile/{level}/{path+}", {200: {BYTES: None}, 304: {}}, problems=(404,), tag="timeline")
def read_tile(level: Annotated[str, Path(pattern=r"^[0-9]{1,2}$")], path: TilePath) -> Response[Any]:
    """A tile of hashes."""
    return _tile(f"tile/{level}/{path}")


def _tile(path: str) -> Response[Any]:
    try:
        tile = Tile.parse(path)
    except (ProofError, ValueError):
        raise NotFound(f"{path!r} is no tile's path", subject=path) from None
    content = _published(PREFIX + path)
    return unchanging(content, BYTES, FOR_EVER if tile.width == WIDTH else FOR_A_WHILE)


def _published(key: str) -> bytes:
    """One GET. A partial tile may be gone once the full one is there, as tlog-tiles allows."""
    with explained(key):
        try:
            data: bytes = lake().s3.get_object(Bucket=lake().settings.bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("NoSuchKey", "404"):
                raise
            raise NotFound(f"{key} is not published", subject=key) from None
        return data
