"""ConversionReviews: what the API server asks when an object is wanted in another version than it is kept in, and what it is told.

Pure. In: a request's body. Out: a `ConversionRequest`, and the body of the answer. What must stay true: all objects of a request are converted or none is, and metadata but labels and annotations stays as it was.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from slinky.kube.objects import Record

__all__ = ["ConversionRequest", "Converter", "conversion_body", "converted", "read_conversion"]

Document = dict[str, Any]
Converter = Callable[[Document, str], Document]
"""An object and the `apiVersion` it is wanted in → the object in it. Raises ValueError, with a sentence for the user, where that cannot be."""


class ConversionRequest(Record, frozen=True):
    """`desired_api_version` is `group/version`."""

    uid: str = ""
    desired_api_version: str = msgspec.field(default="", name="desiredAPIVersion")
    objects: tuple[Document, ...] = ()


class _Review(msgspec.Struct, kw_only=True):
    request: ConversionRequest


def read_conversion(body: bytes) -> ConversionRequest:
    """Raises msgspec.DecodeError where it is none."""
    return msgspec.json.decode(body, type=_Review).request


def converted(request: ConversionRequest, converter: Converter) -> Sequence[Document] | str:
    """All of them, or why not."""
    try:
        return [converter(each, request.desired_api_version) for each in request.objects]
    except ValueError as error:
        return str(error)


def conversion_body(uid: str, answer: Sequence[Document] | str) -> bytes:
    response: Document = {"uid": uid}
    if isinstance(answer, str):
        response["result"] = {"status": "Failure", "message": answer}
    else:
        response["result"] = {"status": "Success"}
        response["convertedObjects"] = list(answer)
    return msgspec.json.encode({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
