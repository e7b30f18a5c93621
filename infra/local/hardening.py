"""Where moto is kinder than AWS: stale Glue versions, S3 event records, unknown CloudFormation types.

Each patch states what AWS does; two only save time. Patches are applied once per process, before moto serves anything.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import os
import threading
import uuid
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus

import botocore.loaders
import botocore.session
from moto.core.exceptions import JsonRESTError
from moto.core.utils import iso_8601_datetime_with_milliseconds
from moto.glue.models import GlueBackend
from moto.glue.responses import GlueResponse
from moto.iam.access_control import IAMPolicy
from moto.s3 import notifications
from moto.s3.exceptions import S3ClientError, S3SignatureDoesNotMatchError
from moto.s3.models import FakeBucket, FakeKey
from moto.s3.responses import S3Response

from infra.local.sqs.queues import mend_queues

_glue_updates = threading.Lock()
_sequencer = itertools.count(0x0055AED6DCD90281)


@functools.cache
def harden_moto() -> None:
    """Applies every patch; the second call in a process does nothing."""
    _keep_objects_in_memory()
    _refuse_stale_glue_versions()
    _send_s3_records_as_aws_does()
    _honour_tls_conditions()
    _refuse_other_bytes_than_promised()
    mend_queues()
    _read_models_once()
    _read_objects_where_they_lie()


def _keep_objects_in_memory() -> None:
    """moto spools objects over 16 MB into a temporary file; nothing of ours touches a disk."""
    os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = str(1 << 40)


def _read_models_once() -> None:
    """Each boto3 session parses botocore's models anew, and each of moto's backends makes a session for its regions.

    Sessions with the same search path share one loader, as the clients of one session do.
    """

    class Paths(list[str]):
        def append(self, path: str) -> None:
            """boto3 adds its own folder with every session."""
            if path not in self:
                super().append(path)

    @functools.cache
    def create_loader(search_path: str | None = None) -> Any:
        loader: Any = botocore.loaders.create_loader(search_path)
        loader._search_paths = Paths(loader._search_paths)
        return loader

    botocore.session.create_loader = create_loader


def _read_objects_where_they_lie() -> None:
    """moto copies the whole object for every GET, also for one of a few bytes of it."""
    written: Any = FakeKey.value

    def value(self: Any) -> bytes:
        with self.lock:
            data: bytes = self._value_buffer._file.getvalue()  # in memory, so this is the object itself
            return data

    FakeKey.value = property(value, written.fset)


def _refuse_stale_glue_versions() -> None:
    """AWS: UpdateTable with a VersionId that is no longer current is a ConcurrentModificationException.

    Iceberg's commit over Glue is this compare-and-swap and nothing else; moto ignores the field, so two commits
    would both be acknowledged and one would vanish.
    """
    original = GlueResponse.update_table

    def update_table(self: GlueResponse) -> Any:
        expected = self.parameters.get("VersionId")
        backend: GlueBackend = self.glue_backend
        with _glue_updates:
            if expected is not None:
                database, name = self.parameters["DatabaseName"], self.parameters["TableInput"]["Name"]
                current = backend.get_table(database, name).as_dict()["VersionId"]
                if str(expected) != current:
                    raise JsonRESTError(
                        "ConcurrentModificationException",
                        f"Update table failed due to concurrent modifications: version {expected} is not {current}.",
                    )
            return original(self)

    GlueResponse.update_table = update_table


def _send_s3_records_as_aws_does() -> None:
    """AWS: one event per object made, with version, sequencer and identities, and the key form-encoded but for `/`."""
    original = notifications.send_event

    def send_event(account_id: str, event_name: Any, bucket: Any, key: Any) -> None:
        put = notifications.S3NotificationEvent.OBJECT_CREATED_PUT_EVENT
        if event_name == put and key.multipart is not None:
            return  # completing a multipart upload is one event on AWS; moto sends a Put before it
        original(account_id, event_name, bucket, key)

    notifications.send_event = send_event
    notifications._get_s3_event = _s3_event


def _s3_event(event_name: str, bucket: Any, key: Any, notification_id: str) -> dict[str, Any]:
    stored = {"key": quote_plus(key.name, safe="/*"), "size": key.size, "eTag": key.etag.strip('"')}
    if bucket.is_versioned:
        stored["versionId"] = key.version_id
    stored["sequencer"] = f"{next(_sequencer):016X}"
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": bucket.region_name,
        "eventTime": iso_8601_datetime_with_milliseconds(),
        "eventName": event_name.removeprefix("s3:"),
        "userIdentity": {"principalId": "AWS:EMBEDDED"},
        "requestParameters": {"sourceIPAddress": "127.0.0.1"},
        "responseElements": {
            "x-amz-request-id": uuid.uuid4().hex[:16].upper(),
            "x-amz-id-2": uuid.uuid4().hex,
        },
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": notification_id,
            "bucket": {"name": bucket.name, "ownerIdentity": {"principalId": "EMBEDDED"}, "arn": bucket.arn},
            "object": stored,
        },
    }
    return {"Records": [record]}


def _honour_tls_conditions() -> None:
    """AWS: a Deny on `aws:SecureTransport: false` stops plain HTTP only. moto reads no conditions and denies all.

    Loopback stands for TLS here, so such a statement concerns nobody.
    """

    def get_permission(self: FakeBucket, action: str, resource: str) -> Any:
        policy = json.loads(self.policy) if self.policy else {"Statement": []}
        statements = [s for s in policy["Statement"] if not _only_for_plain_http(s)]
        return IAMPolicy(json.dumps({**policy, "Statement": statements})).is_action_permitted(action, resource)

    FakeBucket.get_permission = get_permission


def _only_for_plain_http(statement: dict[str, Any]) -> bool:
    secure = statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")
    return statement["Effect"] == "Deny" and str(secure).lower() == "false"


def _refuse_other_bytes_than_promised() -> None:
    """AWS: a PUT whose body is not what its x-amz-checksum-sha256 says is a BadDigest, and a presigned one that comes
    without a header which was signed does not have the signature it claims. A digest bound to a link is these two.
    """
    original = S3Response.put_object

    def put_object(self: S3Response) -> Any:
        signed = self.querystring.get("X-Amz-SignedHeaders", [""])[0].split(";")
        if any(header and header not in self.headers for header in signed):
            raise S3SignatureDoesNotMatchError()
        promised = self.headers.get("x-amz-checksum-sha256")
        if promised and promised != base64.b64encode(sha256(self.body or b"").digest()).decode():
            raise S3ClientError("BadDigest", "The SHA256 you specified did not match the calculated checksum.")
        return original(self)

    S3Response.put_object = put_object
