"""Media become a row of metadata each; their bytes are copied within S3 to `media/`, by digest, and never held.

The copy outlives the landing zone, where a key may be overwritten and old versions expire.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from catalog.ingest.objects import DigestingStream, LandedObject
from catalog.pipeline.formats import detect
from catalog.pipeline.media import HEAD_BYTES, MEDIA, dimensions, media_type
from catalog.places import MEDIA as PLACE


def read_media(source: LandedObject, stream: DigestingStream, name: str) -> Iterator[pa.RecordBatch]:
    """The file's one row, once its bytes are at their place; a crash after that leaves a copy that nobody refers to.

    Reads the whole stream for the digest, a few megabytes at a time, and costs one COPY. Refused if it is text
    under a name that says nothing.
    """
    head = stream.read(HEAD_BYTES)
    kind = media_type(name, head)
    if kind is None:
        detect(name)  # says which names are known
        raise AssertionError(f"{name} is a known format")
    digest = stream.digest()
    width, height = dimensions(kind, head)
    row = {
        "key": source.landed.key,
        "version": source.landed.version_id,
        "size": source.size,
        "sha256": digest,
        "media_type": kind,
        "width": width,
        "height": height,
        "landed_at": source.modified,
        "path": source.copy_to(f"{PLACE}{digest[:2]}/{digest}"),
    }
    yield from pa.Table.from_pylist([row], schema=MEDIA).to_batches()
