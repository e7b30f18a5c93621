"""CloudFormation resources that are created through API calls, and their installation into moto.

A resource type is a row of `types.TYPES`: the calls that create and delete it, and the values of Ref and GetAtt. The
calls go through the endpoint, so a stack creates exactly what a client would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError
from moto.core.common_models import BaseModel, CloudFormationModel

from infra.local.endpoint import Endpoint
from infra.local.formation.stacks import patch_stacks

Properties = dict[str, Any]
State = dict[str, Any]  # the properties, updated with the service's response


@dataclass(frozen=True)
class ApiType:
    """One CloudFormation type.

    `create` returns values to add to the resource's state. `delete` is called with the `identity` values of the state;
    `ref` and `attributes` name the state's values for Ref and GetAtt. Without `update`, an update deletes the resource
    and creates it again. `name` is the property that CloudFormation generates when the template has none.
    """

    type: str
    service: str
    create: Callable[[Any, Properties], Mapping[str, Any]]
    delete: str | None = None
    identity: tuple[str, ...] = ()
    name: str | None = None
    ref: str = "Name"
    attributes: Mapping[str, str] = field(default_factory=dict)
    update: Callable[[Any, State, Properties], None] | None = None


class Resource(BaseModel):
    """A created resource of an ApiType. moto's stack code uses it as one of its own models, by duck typing."""

    spec: ApiType
    endpoint: Endpoint

    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def physical_resource_id(self) -> str:
        return str(self.state[self.spec.ref])

    def get_cfn_attribute(self, attribute: str) -> Any:
        return self.state[self.spec.attributes[attribute]]

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr in cls.spec.attributes

    def is_created(self) -> bool:
        return True

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
    ) -> Resource:
        properties = cls._with_name(resource_name, cloudformation_json)
        return cls._create(properties)

    @classmethod
    def _create(cls, properties: Properties) -> Resource:
        try:
            return cls({**properties, **cls.spec.create(cls._client(), properties)})
        except (BotoCoreError, ClientError) as error:
            raise ValidationError(message=f"{cls.spec.type} could not be created: {error}") from error

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Resource,
        new_resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
    ) -> Resource:
        properties = {**cloudformation_json.get("Properties", {})}
        if cls.spec.name:
            properties.setdefault(cls.spec.name, original_resource.state[cls.spec.name])
        if cls.spec.update:
            cls.spec.update(cls._client(), original_resource.state, properties)
            return cls({**original_resource.state, **properties})
        original_resource.delete(account_id, region_name)
        return cls._create(properties)

    def delete(self, account_id: str, region_name: str) -> None:
        if self.spec.delete is None:
            return
        try:
            getattr(self._client(), self.spec.delete)(**{key: self.state[key] for key in self.spec.identity})
        except ClientError as error:
            # Already deleted, by hand or with its parent: CloudFormation counts that as deleted.
            if "NotFound" not in error.response["Error"]["Code"] and "NoSuch" not in error.response["Error"]["Code"]:
                raise

    @classmethod
    def _client(cls) -> Any:
        return cls.endpoint.client(cls.spec.service, "cloudformation")

    @classmethod
    def _with_name(cls, generated_name: str, cloudformation_json: Any) -> Properties:
        properties = {**cloudformation_json.get("Properties", {})}
        if cls.spec.name:
            properties.setdefault(cls.spec.name, generated_name)
        return properties


class Opaque(BaseModel):
    """A resource without effect in the embedded cloud: only its name is stored."""

    def __init__(self, name: str) -> None:
        self.physical_resource_id = name

    @classmethod
    def create_from_cloudformation_json(cls, resource_name: str, *_: Any, **__: Any) -> Opaque:
        return cls(resource_name)

    @classmethod
    def update_from_cloudformation_json(cls, original_resource: Opaque, *_: Any, **__: Any) -> Opaque:
        return original_resource

    def delete(self, account_id: str, region_name: str) -> None:
        """Does nothing: nothing was created."""

    def is_created(self) -> bool:
        return True


def install_types(endpoint: Endpoint, types: tuple[ApiType, ...], opaque: frozenset[str]) -> None:
    """Makes moto's CloudFormation create `types` through `endpoint`, and reject types that neither it nor we know."""
    patch_stacks()
    ours: dict[str, type[Resource]] = {
        spec.type: type(spec.type, (Resource,), {"spec": spec, "endpoint": endpoint}) for spec in types
    }

    def class_of(resource_type: str) -> type[CloudFormationModel]:
        if resource_type in ours:
            return ours[resource_type]
        if resource_type in opaque:
            return Opaque
        moto_model = parsing.get_model_map().get(resource_type)
        if moto_model is None:
            raise ValidationError(
                message=f"Unrecognized resource types: [{resource_type}]. Add it to infra/local/formation/types.py"
            )
        return moto_model

    def name_property_of(resource_type: str) -> str | None:
        if resource_type in ours:
            return ours[resource_type].spec.name
        return parsing.get_name_type_map().get(resource_type)

    parsing.resource_class_from_type = class_of
    parsing.resource_name_property_from_type = name_property_of
