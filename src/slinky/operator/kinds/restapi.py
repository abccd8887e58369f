"""RestApi: slurmrestd, through which the operator and others speak to Slurm."""

from typing import Annotated

import msgspec

from slinky.kube.objects import Meta
from slinky.operator.kinds.common import Conditioned, Container, NameReference, Part, PodTemplate, ServiceTemplate, told

__all__ = ["RestApi", "RestApiSpec", "RestApiStatus"]


class RestApiSpec(Part, frozen=True):
    """How slurmrestd is offered."""

    controller_ref: Annotated[NameReference, told("The Controller it speaks for. Cannot be changed.")] = msgspec.field(
        default_factory=NameReference
    )
    replicas: Annotated[int, told("How many pods.", least=0)] = 1
    slurmrestd: Container = msgspec.field(default_factory=dict)
    template: Annotated[PodTemplate, told("Of slurmrestd's pods.")] = msgspec.field(default_factory=PodTemplate)
    service: Annotated[ServiceTemplate, told("Of slurmrestd's Service.")] = msgspec.field(default_factory=ServiceTemplate)


class RestApiStatus(Conditioned, frozen=True):
    """How slurmrestd is."""

    ready_replicas: Annotated[int, told("Pods that answer.")] = 0


class RestApi(msgspec.Struct, kw_only=True, frozen=True):
    """slurmrestd."""

    metadata: Meta
    spec: RestApiSpec = msgspec.field(default_factory=RestApiSpec)
    status: RestApiStatus = msgspec.field(default_factory=RestApiStatus)
