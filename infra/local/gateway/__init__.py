"""API Gateway: serves the deployed HTTP APIs on loopback."""

from infra.local.gateway.server import Gateway

__all__ = ["Gateway"]
