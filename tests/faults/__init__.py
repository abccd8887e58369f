"""Proxies that break things on purpose, between a client and a real HTTP server."""

from tests.faults.proxy import Fault, FaultProxy, HeardRequest
from tests.faults.tampering import PASS, Tamper, TamperingProxy

__all__ = ["PASS", "Fault", "FaultProxy", "HeardRequest", "Tamper", "TamperingProxy"]
