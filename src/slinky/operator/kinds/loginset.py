"""LoginSet: pods that people log in to, to use a cluster."""

from typing import Annotated, Any

import msgspec

from slinky.kube.objects import Meta
from slinky.operator.kinds.common import Conditioned, Container, KeyReference, NameReference, Part, PodTemplate, ServiceTemplate, told

__all__ = ["LoginSet", "LoginSetSpec", "LoginSetStatus"]


class LoginSetSpec(Part, frozen=True):
    """Where people log in."""

    controller_ref: Annotated[NameReference, told("The Controller whose cluster is used from there. Cannot be changed.")] = msgspec.field(
        default_factory=NameReference
    )
    replicas: Annotated[int, told("How many pods.", least=0)] = 1
    login: Container = msgspec.field(default_factory=dict)
    initconf: Annotated[dict[str, Any], told("Accepted for compatibility, and without effect: keys are mounted with the right owner.")] = (
        msgspec.field(default_factory=dict)
    )
    template: Annotated[PodTemplate, told("Of the pods.")] = msgspec.field(default_factory=PodTemplate)
    root_ssh_authorized_keys: Annotated[str, told("root's authorized_keys.")] = ""
    extra_sshd_config: Annotated[str, told("Lines for sshd_config. What stands here wins over what the operator would write.")] = ""
    sssd_conf_ref: Annotated[KeyReference | None, told("A Secret's key with sssd.conf, which says where users are known.")] = None
    strategy: Annotated[dict[str, Any], told("As of a Deployment.")] = msgspec.field(default_factory=dict)
    service: Annotated[ServiceTemplate, told("Of the Service that people reach.")] = msgspec.field(default_factory=ServiceTemplate)


class LoginSetStatus(Conditioned, frozen=True):
    """How logging in is."""

    replicas: Annotated[int, told("Pods there are.")] = 0
    ready_replicas: Annotated[int, told("Pods that let people in.")] = 0
    selector: Annotated[str, told("The pods' labels, for autoscalers.")] = ""


class LoginSet(msgspec.Struct, kw_only=True, frozen=True):
    """Pods that people log in to."""

    metadata: Meta
    spec: LoginSetSpec = msgspec.field(default_factory=LoginSetSpec)
    status: LoginSetStatus = msgspec.field(default_factory=LoginSetStatus)
