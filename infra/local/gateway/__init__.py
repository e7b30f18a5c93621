"""API Gateway v2 HTTP APIs, served on loopback as they are deployed."""

from infra.local.gateway.server import Gateway

__all__ = ["Gateway"]
