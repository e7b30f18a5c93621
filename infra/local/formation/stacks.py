"""moto's stacks, mended: one that cannot be created leaves nothing, nor does one that was deleted; defaults stay, and
JSON is read as JSON."""

from __future__ import annotations

import functools
import json
from contextlib import suppress
from typing import Any

from moto.cloudformation.models import CloudFormationBackend, Stack


@functools.cache
def mend_stacks() -> None:
    """Applied once per process."""
    _roll_back_failed_stacks()
    _keep_defaults()
    _read_json_as_json()
    _leave_the_deleted_alone()


def _roll_back_failed_stacks() -> None:
    """AWS: a failed creation is rolled back. moto keeps a stack that raises whenever it is looked at."""
    original = CloudFormationBackend.create_stack

    def create_stack(self: CloudFormationBackend, *arguments: Any, **named: Any) -> Stack:
        before = set(self.stacks)
        try:
            return original(self, *arguments, **named)
        except BaseException:
            for stack_id in set(self.stacks) - before:
                stack = self.stacks.pop(stack_id)
                with suppress(Exception):  # the first failure is the one to tell
                    stack.resource_map.delete()
            raise

    CloudFormationBackend.create_stack = create_stack


def _keep_defaults() -> None:
    """AWS: `UsePreviousValue` of a parameter that was never given keeps its default. moto raises."""
    original = CloudFormationBackend._resolve_update_parameters

    def resolve(self: CloudFormationBackend, instance: Any, incoming_params: list[dict[str, Any]]) -> dict[str, str]:
        asked = [
            one for one in incoming_params if "ParameterValue" in one or one["ParameterKey"] in instance.parameters
        ]
        resolved: dict[str, str] = original(self, instance, asked)
        return resolved

    CloudFormationBackend._resolve_update_parameters = resolve


def _read_json_as_json() -> None:
    """moto gives every template to a pure-Python YAML parser first: seconds for templates the size of ours."""
    original = Stack.parse_template

    def parse_template(template: str) -> dict[str, Any]:
        if template.lstrip().startswith("{"):
            parsed: dict[str, Any] = json.loads(template)
            return parsed
        return original(template)

    Stack.parse_template = staticmethod(parse_template)


def _leave_the_deleted_alone() -> None:
    """AWS: a deleted stack can be described, by its id. moto then makes all that its outputs refer to once more."""
    original = Stack.delete

    def delete(self: Stack) -> None:
        original(self)
        self.output_map._output_json_map = {}
        made = self.resource_map
        left = made._parsed_resources.keys() & made._resource_json_map.keys()
        made._resource_json_map = {name: made._resource_json_map[name] for name in left}

    Stack.delete = delete
