"""Media files: each becomes one row of metadata, and its bytes are copied within S3 to `media/`, named by digest.

The copy outlives the landing prefix, where a key may be overwritten and old versions expire.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from catalog.core.s3_layout import MEDIA as MEDIA_PREFIX
from catalog.formats import HEAD_BYTES, MEDIA, detect, dimensions, media_type
from catalog.ingest.landed_object import DigestingStream, LandedObject


def read_media(source: LandedObject, stream: DigestingStream, name: str) -> Iterator[pa.RecordBatch]:
    """Copies the file's bytes, then yields its row; a crash after the copy leaves a copy that no row refers to.

    Reads the whole stream for the digest, a few megabytes at a time, and costs one COPY. Raises FileRejected for text
    whose name has no known suffix.
    """
    head = stream.read(HEAD_BYTES)
    kind = media_type(name, head)
    if kind is None:
        detect(name)  # raises FileRejected with the known suffixes
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
        "path": source.copy_to(f"{MEDIA_PREFIX}{digest[:2]}/{digest}"),
    }
    yield from pa.Table.from_pylist([row], schema=MEDIA).to_batches()
