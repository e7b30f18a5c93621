"""CloudFormation types that moto does not create, or creates incompletely, created through the services' APIs.

moto skips an unknown type with a warning. AWS rejects the template, and so does the embedded cloud, except for the
types in `types.OPAQUE`.
"""

from infra.local.formation.resource import install_types

__all__ = ["install_types"]
