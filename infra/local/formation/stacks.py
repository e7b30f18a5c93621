"""Patches for moto's CloudFormation stacks: rollback, deletion, parameter defaults, and strict templates."""

from __future__ import annotations

import functools
import json
from contextlib import suppress
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack

from infra.local.formation.schemas import unknown_properties


@functools.cache
def patch_stacks() -> None:
    """Applies every patch, once per process."""
    _roll_back_failed_stacks()
    _keep_parameter_defaults()
    _parse_templates()
    _forget_deleted_resources()


def _roll_back_failed_stacks() -> None:
    """AWS: a failed creation is rolled back. moto keeps a stack that raises whenever it is described."""
    original = CloudFormationBackend.create_stack

    def create_stack(self: CloudFormationBackend, *arguments: Any, **named: Any) -> Stack:
        before = set(self.stacks)
        try:
            return original(self, *arguments, **named)
        except BaseException:
            for stack_id in set(self.stacks) - before:
                stack = self.stacks.pop(stack_id)
                with suppress(Exception):  # raise the first failure, not this one
                    stack.resource_map.delete()
            raise

    CloudFormationBackend.create_stack = create_stack


def _keep_parameter_defaults() -> None:
    """AWS: `UsePreviousValue` of a parameter that was never set keeps its default. moto raises."""
    original = CloudFormationBackend._resolve_update_parameters

    def resolve(self: CloudFormationBackend, instance: Any, incoming_params: list[dict[str, Any]]) -> dict[str, str]:
        resolvable = [
            parameter
            for parameter in incoming_params
            if "ParameterValue" in parameter or parameter["ParameterKey"] in instance.parameters
        ]
        resolved: dict[str, str] = original(self, instance, resolvable)
        return resolved

    CloudFormationBackend._resolve_update_parameters = resolve


def _parse_templates() -> None:
    """AWS: a template with a property that its type does not have is refused; moto ignores the property.

    And moto parses every template as YAML first, in pure Python, which takes seconds for the lake's templates.
    """
    original = Stack.parse_template

    def parse_template(template: str) -> dict[str, Any]:
        is_json = template.lstrip().startswith("{")
        parsed: dict[str, Any] = json.loads(template) if is_json else original(template)
        if unknown := unknown_properties(parsed):
            raise ValidationError(message="; ".join(unknown))
        return parsed

    Stack.parse_template = staticmethod(parse_template)


def _forget_deleted_resources() -> None:
    """AWS: a deleted stack can be described by its id. moto then creates the resources in its outputs again."""
    original = Stack.delete

    def delete(self: Stack) -> None:
        original(self)
        self.output_map._output_json_map = {}
        resources = self.resource_map
        remaining = resources._parsed_resources.keys() & resources._resource_json_map.keys()
        resources._resource_json_map = {name: resources._resource_json_map[name] for name in remaining}

    Stack.delete = delete
