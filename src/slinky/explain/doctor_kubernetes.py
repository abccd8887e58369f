"""What the doctor looks at in Kubernetes: configuration, version, nodes beside Slurm's, GRES beside Slurm's, rights, webhooks, the Lease, the clock. Pure.

What must stay true: a webhook is judged by what the API server would do with it: no caBundle, one that did not sign what is served, nobody behind the Service.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from slinky.explain.catalogue import entry
from slinky.explain.facts import in_slurm
from slinky.explain.findings import Finding
from slinky.explain.installation import Installation
from slinky.explain.leader import is_held
from slinky.explain.nodes import devices_in_kubernetes, devices_in_slurm, is_labelled
from slinky.slurm import compress

__all__ = ["clock", "configuration", "gres", "leader", "namespaces", "nodes", "rights", "version", "webhooks"]

OLDEST = (1, 35)
SKEW = 10.0
LOOKED_AT = ("namespaceSelector", "rules", "failurePolicy", "matchConditions")


def configuration(seen: Installation) -> Iterator[Finding]:
    settings = seen.settings
    if not seen.wrong and settings.managed_namespace_selector is None and not settings.managed_namespaces:
        yield entry("config-manages-nothing").found("configuration", "managedNamespaces is empty, and there is no managedNamespaceSelector")


def namespaces(seen: Installation) -> Iterator[Finding]:
    settings, there = seen.settings, {found.metadata.name for found in seen.kube.namespaces}
    if settings.managed_namespace_selector is not None:
        if seen.kube.namespaces and not any(
            settings.manages(found.metadata.name, dict(found.metadata.labels)) for found in seen.kube.namespaces
        ):
            yield entry("config-manages-nothing").found("configuration", "managedNamespaceSelector matches no namespace")
        return
    for name in settings.managed_namespaces:
        if name not in there:
            yield entry("config-namespace-missing").found(
                f"namespace {name}", "managedNamespaces names it, and it does not exist", namespace=name
            )


def version(seen: Installation) -> Iterator[Finding]:
    found = re.search(r"(\d+)\.(\d+)", seen.kube.version)
    if found and tuple(map(int, found.groups())) < OLDEST:
        yield entry("kubernetes-version").found("Kubernetes", f"the API server is {seen.kube.version}")


def nodes(seen: Installation) -> Iterator[Finding]:
    known = {node.name for node in seen.slurm.nodes}
    labelled = [node for node in seen.kube.nodes if is_labelled(node)]
    if seen.settings.nodes.register and not labelled and not any(in_slurm(node) in known for node in seen.kube.nodes):
        yield entry("nodes-none-labelled").found(
            "Nodes", f"none of {len(seen.kube.nodes)} has label scheduler.slinky.slurm.net/external-node, and Slurm knows none of them"
        )
    missing = [in_slurm(node) for node in labelled if in_slurm(node) not in known]
    if missing:
        advice = (
            "start `slinky bridge run`, which registers them; where it runs, an Event on the Node says what Slurm refuses"
            if seen.settings.nodes.register
            else "nodes.register is false: set it to true, or add the nodes to slurm.conf (NodeName=… State=EXTERNAL …)"
        )
        yield entry("nodes-unregistered").found(
            f"nodes {compress(missing)}", f"{len(missing)} labelled Nodes are not in Slurm", advice=advice
        )


def gres(seen: Installation) -> Iterator[Finding]:
    """Once for each difference that some nodes have in common."""
    told = {node.name: node for node in seen.slurm.nodes}
    mapped = {name.partition(":")[0] for name in seen.settings.gres.values()}
    differing: dict[tuple[str, int, int], list[str]] = {}
    for node in seen.kube.nodes:
        found = told.get(in_slurm(node))
        if found is None:
            continue
        here, there = devices_in_kubernetes(node, seen.settings.gres), devices_in_slurm(found)
        for name in sorted({*here, *(mapped & set(there))}):
            if here.get(name, 0) != there.get(name, 0):
                differing.setdefault((name, here.get(name, 0), there.get(name, 0)), []).append(found.name)
    for (name, here_count, there_count), names in differing.items():
        seen_words = f"{name}: {here_count} allocatable in Kubernetes, {there_count} in Slurm"
        yield entry("gres-mismatch").found(f"nodes {compress(names)}", seen_words, node=compress(names), gres=name)


def rights(seen: Installation) -> Iterator[Finding]:
    about = f"user {seen.kube.bridge_user or 'whoever asks'}"
    for right in seen.kube.denied:
        if (right.resource, right.verb) == ("leases", "create") and seen.kube.lease is not None:
            continue  # the chart made it
        where = f" in namespace {right.namespace}" if right.namespace else ""
        words = f"may not {right.verb} {right.resource}{f'.{right.group}' if right.group else ''}{where}"
        if right.optional:
            yield entry("rights-missing-optional").found(about, words, advice=f"with it {right.optional}")
        else:
            yield entry("rights-missing").found(about, words, rule=right.rule)


def leader(seen: Installation) -> Iterator[Finding]:
    settings, lease = seen.settings, seen.kube.lease
    about = f"Lease {settings.namespace}/{settings.leader.name}"
    if lease is None:
        yield entry("leader-missing").found(about, "it does not exist", namespace=settings.namespace, name=settings.leader.name)
    elif not is_held(lease, seen.now):
        holder, renewed = lease.spec.holder_identity, lease.spec.renew_time
        words = f"{holder} renewed it last at {renewed:%Y-%m-%d %H:%M:%S} UTC" if holder and renewed else "nobody holds it"
        yield entry("leader-nobody").found(about, words, namespace=settings.namespace)


def clock(seen: Installation) -> Iterator[Finding]:
    if seen.kube.ahead is not None and abs(seen.kube.ahead) > SKEW:
        words = f"its clock is {abs(seen.kube.ahead):.0f} s {'ahead of' if seen.kube.ahead > 0 else 'behind'} the one here"
        yield entry("clock-kubernetes").found("API server", words)


# Webhooks


def webhooks(seen: Installation) -> Iterator[Finding]:
    settings, found = seen.settings, seen.kube.webhooks
    for kind, there in found.found.items():
        about = f"{kind} webhook configuration {settings.admission.configuration}"
        if there is None:
            yield entry("webhook-missing").found(about, "it does not exist")
            continue
        hooks: Sequence[Mapping[str, Any]] = there.get("webhooks") or ()
        if differences := list(_differences(found.wanted.get(kind, {}), hooks)):
            yield entry("webhook-other").found(about, "; ".join(differences))
        bundles = {hook.get("clientConfig", {}).get("caBundle", "") for hook in hooks}
        if "" in bundles:
            yield entry("webhook-without-authority").found(about, "caBundle is empty")
        elif found.certificate and not all(_signed(bundle, found.certificate) for bundle in bundles):
            yield entry("webhook-wrong-authority").found(about, "its caBundle did not sign the certificate that the webhook has")
    if found.certificate and (why := _invalid(found.certificate, seen)):
        yield entry("webhook-certificate-expired").found("webhook", why, namespace=settings.namespace, secret=settings.admission.secret)
    if found.endpoints == 0:
        service = f"Service {settings.namespace}/{settings.admission.service}"
        yield entry("webhook-without-endpoint").found(service, "no address behind it is ready", namespace=settings.namespace)
    if found.unanswered:
        yield entry("webhook-without-endpoint").found(f"webhook {settings.admission.url}", found.unanswered, namespace=settings.namespace)


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


def _invalid(certificate: bytes, seen: Installation) -> str:
    try:
        served = x509.load_pem_x509_certificates(certificate)[0]
    except (ValueError, IndexError):
        return "its certificate cannot be read"
    if served.not_valid_after_utc < seen.now:
        return f"its certificate ended at {served.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    return f"its certificate begins at {served.not_valid_before_utc:%Y-%m-%d %H:%M} UTC" if served.not_valid_before_utc > seen.now else ""
