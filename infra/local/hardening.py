"""Patches that make moto as strict as AWS: stale Glue versions, S3 event records, TLS conditions, checksums.

Each patch states what AWS does; two only save time. Patches are applied once per process, before moto serves requests.
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

from infra.local.awslambda.functions import patch_functions
from infra.local.gateway.discovery import patch_authorizers
from infra.local.kms import patch_keys
from infra.local.sqs.queues import patch_queues

_glue_updates = threading.Lock()
_sequencer = itertools.count(0x0055AED6DCD90281)


@functools.cache
def harden_moto() -> None:
    """Applies every patch; the second call in a process does nothing."""
    _keep_objects_in_memory()
    _reject_stale_glue_versions()
    _send_s3_event_records()
    _honour_tls_conditions()
    _check_put_digests()
    _reject_notifications_to_fifo_queues()
    patch_queues()
    patch_functions()
    patch_authorizers()
    patch_keys()
    _cache_botocore_models()
    _read_objects_without_copying()


def _keep_objects_in_memory() -> None:
    """moto spools objects over 16 MB to a temporary file; the embedded cloud writes nothing to disk."""
    os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = str(1 << 40)


def _cache_botocore_models() -> None:
    """Every boto3 session parses botocore's models again, and each moto backend creates a session to list its regions.

    After this, sessions with the same search path share a loader, as the clients of one session do.
    """

    class Paths(list[str]):
        def append(self, path: str) -> None:
            """Every boto3 session appends its own folder."""
            if path not in self:
                super().append(path)

    @functools.cache
    def create_loader(search_path: str | None = None) -> Any:
        loader: Any = botocore.loaders.create_loader(search_path)
        loader._search_paths = Paths(loader._search_paths)
        return loader

    botocore.session.create_loader = create_loader


def _read_objects_without_copying() -> None:
    """moto copies the whole object for every GET, even for a range of a few bytes."""
    original: Any = FakeKey.value

    def value(self: Any) -> bytes:
        with self.lock:
            data: bytes = self._value_buffer._file.getvalue()  # in memory, so this is the object itself
            return data

    FakeKey.value = property(value, original.fset)


def _reject_stale_glue_versions() -> None:
    """AWS: UpdateTable with a VersionId that is not current raises ConcurrentModificationException.

    This compare-and-swap is all that orders Iceberg commits in Glue. moto ignores the field, so two commits would both
    be acknowledged and one would be lost.
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


def _send_s3_event_records() -> None:
    """AWS: one event per created object, with version, sequencer and identities, the key form-encoded except `/`."""
    original = notifications.send_event

    def send_event(account_id: str, event_name: Any, bucket: Any, key: Any) -> None:
        put = notifications.S3NotificationEvent.OBJECT_CREATED_PUT_EVENT
        if event_name == put and key.multipart is not None:
            return  # AWS sends one event for a multipart upload; moto sends a Put before it
        original(account_id, event_name, bucket, key)

    notifications.send_event = send_event
    notifications._get_s3_event = _s3_event


def _s3_event(event_name: str, bucket: Any, key: Any, notification_id: str) -> dict[str, Any]:
    object_fields = {"key": quote_plus(key.name, safe="/*"), "size": key.size, "eTag": key.etag.strip('"')}
    if bucket.is_versioned:
        object_fields["versionId"] = key.version_id
    object_fields["sequencer"] = f"{next(_sequencer):016X}"
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
            "object": object_fields,
        },
    }
    return {"Records": [record]}


def _honour_tls_conditions() -> None:
    """AWS: a Deny on `aws:SecureTransport: false` stops only plain HTTP. moto ignores conditions and denies everything.

    Requests on loopback count as TLS, so such statements are skipped.
    """

    def get_permission(self: FakeBucket, action: str, resource: str) -> Any:
        policy = json.loads(self.policy) if self.policy else {"Statement": []}
        statements = [s for s in policy["Statement"] if not _denies_only_plain_http(s)]
        return IAMPolicy(json.dumps({**policy, "Statement": statements})).is_action_permitted(action, resource)

    FakeBucket.get_permission = get_permission


def _denies_only_plain_http(statement: dict[str, Any]) -> bool:
    secure = statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")
    return statement["Effect"] == "Deny" and str(secure).lower() == "false"


def _reject_notifications_to_fifo_queues() -> None:
    """AWS: S3 sends no event notifications to a FIFO queue
    (docs.aws.amazon.com/AmazonS3/latest/userguide/notification-how-to-event-types-and-destinations.html)."""
    original = FakeBucket.set_notification_configuration

    def set_notification_configuration(self: FakeBucket, notification_config: dict[str, Any] | None) -> None:
        if '.fifo"' in json.dumps((notification_config or {}).get("QueueConfiguration")):
            raise S3ClientError("InvalidArgument", "Unable to validate the following destination configurations")
        original(self, notification_config)

    FakeBucket.set_notification_configuration = set_notification_configuration


def _check_put_digests() -> None:
    """AWS: a PUT whose body does not match its x-amz-checksum-sha256 fails with BadDigest, and a presigned PUT that
    lacks a signed header fails with SignatureDoesNotMatch. Together they bind a digest to a presigned URL.
    """
    original = S3Response.put_object

    def put_object(self: S3Response) -> Any:
        signed = self.querystring.get("X-Amz-SignedHeaders", [""])[0].split(";")
        if any(header and header not in self.headers for header in signed):
            raise S3SignatureDoesNotMatchError()
        checksum = self.headers.get("x-amz-checksum-sha256")
        if checksum and checksum != base64.b64encode(sha256(self.body or b"").digest()).decode():
            raise S3ClientError("BadDigest", "The SHA256 you specified did not match the calculated checksum.")
        return original(self)

    S3Response.put_object = put_object
