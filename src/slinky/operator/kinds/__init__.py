"""The kinds of `slinky.slurm.net`: what an administrator writes, and where the API server keeps it.

Each is kept in caches as it was written (`Written`): one that cannot be read must not hide the others. `slinky.operator.kinds.reading` makes of it the typed object, or the list of what is wrong with it.
"""

from typing import Any

import msgspec

from slinky.kube import KubeObject, Resource
from slinky.operator.kinds.accounting import Accounting, AccountingSpec
from slinky.operator.kinds.common import Conditioned, KeyReference, NameReference, PodTemplate, ServiceTemplate
from slinky.operator.kinds.controller import Controller, ControllerSpec
from slinky.operator.kinds.loginset import LoginSet, LoginSetSpec
from slinky.operator.kinds.nodeset import NodeSet, NodeSetSpec
from slinky.operator.kinds.restapi import RestApi, RestApiSpec
from slinky.operator.kinds.token import Token, TokenSpec

__all__ = [
    "ACCOUNTINGS",
    "CONTROLLERS",
    "GROUP",
    "KINDS",
    "LOGINSETS",
    "NODESETS",
    "RESTAPIS",
    "TOKENS",
    "VERSION",
    "Accounting",
    "AccountingSpec",
    "Conditioned",
    "Controller",
    "ControllerSpec",
    "KeyReference",
    "LoginSet",
    "LoginSetSpec",
    "NameReference",
    "NodeSet",
    "NodeSetSpec",
    "PodTemplate",
    "RestApi",
    "RestApiSpec",
    "ServiceTemplate",
    "Token",
    "TokenSpec",
    "Written",
]

GROUP = "slinky.slurm.net"
VERSION = "v1beta1"


class Written(KubeObject, frozen=True):
    """An object of ours as it stands in the API server."""

    kind: str = ""
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


def _resource(plural: str) -> Resource[Written]:
    return Resource(GROUP, VERSION, plural, Written)


CONTROLLERS = _resource("controllers")
ACCOUNTINGS = _resource("accountings")
RESTAPIS = _resource("restapis")
NODESETS = _resource("nodesets")
LOGINSETS = _resource("loginsets")
TOKENS = _resource("tokens")

KINDS: dict[str, type[msgspec.Struct]] = {
    "Controller": Controller,
    "Accounting": Accounting,
    "RestApi": RestApi,
    "NodeSet": NodeSet,
    "LoginSet": LoginSet,
    "Token": Token,
}
