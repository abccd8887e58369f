"""A proxy that breaks things on purpose, between a client and a real HTTP server."""

from tests.faults.proxy import Fault, FaultProxy, HeardRequest

__all__ = ["Fault", "FaultProxy", "HeardRequest"]
