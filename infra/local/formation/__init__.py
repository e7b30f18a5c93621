"""CloudFormation types that moto does not create, or creates by halves, made real through the services' own APIs.

moto skips an unknown type with a warning; AWS would refuse the template. So does the embedded cloud, except for
the types named in `types.OPAQUE`.
"""

from infra.local.formation.resource import install_types

__all__ = ["install_types"]
