"""How a function that reads a queue answers: which of its messages must come again. No trigger of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from catalog.errors import LakeError


def partial_answer(event: dict[str, Any], context: Any, refused: Mapping[str, LakeError]) -> Any:
    """Lambda's partial batch response: the messages in `refused`, by id, come again; all others are done with."""

    def judge(record: SQSRecord) -> None:
        if record.message_id in refused:
            raise refused[record.message_id]

    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    return process_partial_response(event=event, record_handler=judge, processor=processor, context=context)
