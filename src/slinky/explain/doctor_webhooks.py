"""What the doctor looks at in a webhook: its configurations, its certificate, and who answers behind it; the bridge's and the operator's alike. Pure.

What must stay true: a webhook is judged by what the API server would do with it: no caBundle, one that did not sign what is served, nobody behind the Service.
"""

import base64
import binascii
import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from slinky.explain.catalogue import entry
from slinky.explain.findings import Finding
from slinky.explain.installation import Installation, Webhooks

__all__ = ["Admission", "bridges", "operators"]

LOOKED_AT = ("namespaceSelector", "rules", "failurePolicy", "matchConditions")


class Admission(Protocol):
    """What a service's settings say of its webhook."""

    @property
    def secret(self) -> str: ...
    @property
    def service(self) -> str: ...
    @property
    def configuration(self) -> str: ...
    @property
    def url(self) -> str: ...


def bridges(seen: Installation) -> Iterator[Finding]:
    yield from _judged("", seen.kube.webhooks, seen.settings.admission, seen.settings.namespace, seen.now)


def operators(seen: Installation) -> Iterator[Finding]:
    if seen.operator is not None:
        settings = seen.operator.settings
        yield from _judged("operator-", seen.operator.webhooks, settings.admission, settings.namespace, seen.now)


def _judged(whose: str, found: Webhooks, admission: Admission, namespace: str, now: dt.datetime) -> Iterator[Finding]:
    """`whose` is how the findings' codes begin."""
    for kind, there in found.found.items():
        about = f"{kind} webhook configuration {admission.configuration}"
        if there is None:
            yield entry(f"{whose}webhook-missing").found(about, "it does not exist")
            continue
        hooks: Sequence[Mapping[str, Any]] = there.get("webhooks") or ()
        if differences := list(_differences(found.wanted.get(kind, {}), hooks)):
            yield entry(f"{whose}webhook-other").found(about, "; ".join(differences))
        bundles = {hook.get("clientConfig", {}).get("caBundle", "") for hook in hooks}
        if "" in bundles:
            yield entry(f"{whose}webhook-without-authority").found(about, "caBundle is empty")
        elif found.certificate and not all(_signed(bundle, found.certificate) for bundle in bundles):
            yield entry(f"{whose}webhook-wrong-authority").found(about, "its caBundle did not sign the certificate that the webhook has")
    if found.certificate and (why := _invalid(found.certificate, now)):
        yield entry(f"{whose}webhook-certificate-expired").found("webhook", why, namespace=namespace, secret=admission.secret)
    if found.endpoints == 0:
        service = f"Service {namespace}/{admission.service}"
        yield entry(f"{whose}webhook-without-endpoint").found(service, "no address behind it is ready", namespace=namespace)
    if found.unanswered:
        yield entry(f"{whose}webhook-without-endpoint").found(f"webhook {admission.url}", found.unanswered, namespace=namespace)


def _differences(wanted: Mapping[str, Any], hooks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What matters of them, leaving out what the API server fills in."""
    there = {hook.get("name", ""): hook for hook in hooks}
    for hook in wanted.get("webhooks", ()):
        found = there.get(hook["name"])
        if found is None:
            yield f"webhook {hook['name']} is missing"
            continue
        yield from (f"webhook {hook['name']} has another {key}" for key in LOOKED_AT if not _says(found.get(key), hook.get(key)))


def _says(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; the server may have added to it."""
    if wanted is None:
        return True
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(_says(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list | tuple) and all(isinstance(each, Mapping) and "name" in each for each in wanted):
        there = {each.get("name"): each for each in found or () if isinstance(each, Mapping)}  # by name: there may be more of them
        return all(_says(there.get(each["name"]), each) for each in wanted)
    if isinstance(wanted, list | tuple):
        return isinstance(found, list | tuple) and len(found) == len(wanted) and all(map(_says, found, wanted))
    return bool(found == wanted)


def _signed(bundle: str, certificate: bytes) -> bool:
    try:
        authorities = x509.load_pem_x509_certificates(base64.b64decode(bundle))
        served = x509.load_pem_x509_certificates(certificate)[0]
    except (ValueError, binascii.Error, IndexError):
        return False
    return any(_issued(served, authority) for authority in authorities)


def _issued(served: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        served.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return served == authority
    return True


def _invalid(certificate: bytes, now: dt.datetime) -> str:
    try:
        served = x509.load_pem_x509_certificates(certificate)[0]
    except (ValueError, IndexError):
        return "its certificate cannot be read"
    if served.not_valid_after_utc < now:
        return f"its certificate ended at {served.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    return f"its certificate begins at {served.not_valid_before_utc:%Y-%m-%d %H:%M} UTC" if served.not_valid_before_utc > now else ""
