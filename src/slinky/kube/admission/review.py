"""AdmissionReviews: what the API server asks a webhook, and what it is told.

Pure. In: a request's body. Out: an `AdmissionRequest`, whose objects are decoded only when read; and the body of the answer.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from slinky.kube.admission.jsonpatch import diff
from slinky.kube.objects import KubeObject, Record

__all__ = ["AdmissionRequest", "AdmissionResponse", "UserInfo", "answer_body", "read_review"]

T = TypeVar("T", bound=KubeObject)
NULL = msgspec.Raw(b"null")


class UserInfo(Record, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()


class GroupVersionKind(Record, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(Record, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(Record, frozen=True):
    """`operation` is CREATE, UPDATE, DELETE or CONNECT. A DELETE has no object, a CREATE no old one."""

    uid: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = NULL
    old_object: msgspec.Raw = NULL
    dry_run: bool = False

    def read(self, kind: type[T]) -> T | None:
        """The object as a type of `slinky.kube.objects`."""
        return msgspec.json.decode(self.object, type=kind | None)

    def read_old(self, kind: type[T]) -> T | None:
        return msgspec.json.decode(self.old_object, type=kind | None)

    def document(self) -> dict[str, Any]:
        """The object, whole and of its own: change it and answer `AdmissionResponse.mutate(request, document)`."""
        return msgspec.json.decode(self.object, type=dict[str, Any] | None) or {}

    def old_document(self) -> dict[str, Any]:
        """What it was before; empty for a CREATE."""
        return msgspec.json.decode(self.old_object, type=dict[str, Any] | None) or {}


@dataclass(frozen=True)
class AdmissionResponse:
    """Made by `allow`, `refuse` or `mutate`."""

    allowed: bool
    message: str = ""
    code: int = 0
    patch: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    audit: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def allow(cls, *, warnings: Sequence[str] = ()) -> "AdmissionResponse":
        return cls(True, warnings=warnings)

    @classmethod
    def refuse(cls, message: str, *, code: int = 403) -> "AdmissionResponse":
        """`message` is what the user reads after `denied the request:`: what was asked, what is wrong, what would be right."""
        return cls(False, message, code)

    @classmethod
    def mutate(cls, request: AdmissionRequest, document: Mapping[str, Any], *, warnings: Sequence[str] = ()) -> "AdmissionResponse":
        """Allowed, and turned into `document`."""
        return cls(True, patch=diff(request.document(), document), warnings=warnings)


class _Review(msgspec.Struct, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest


def read_review(body: bytes) -> AdmissionRequest:
    """Raises msgspec.DecodeError where it is none."""
    return msgspec.json.decode(body, type=_Review).request


def answer_body(uid: str, answer: AdmissionResponse) -> bytes:
    response: dict[str, Any] = {"uid": uid, "allowed": answer.allowed}
    if answer.message or answer.code:
        response["status"] = {"message": answer.message, "code": answer.code or 403}
    if answer.patch and answer.allowed:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(list(answer.patch))).decode()
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    if answer.audit:
        response["auditAnnotations"] = dict(answer.audit)
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
