"""What is wrong with a spec by itself, kind by kind.

Pure. Most of what the CRDs' rules refuse is said here again, for an API server whose CRDs are older than we are.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from slinky.operator.conf.parameters import SLURM_PARAMETERS, SLURMDBD_PARAMETERS
from slinky.operator.kinds import Accounting, Controller, KeyReference, LoginSet, NodeSet, RestApi, Token
from slinky.operator.kinds.durations import seconds_of
from slinky.operator.kinds.reading import UNSUPPORTED_FIELD, Problem
from slinky.operator.kinds.rules import CLUSTER_NAME_LENGTH, HA, TAINTS
from slinky.operator.names import token_secret
from slinky.operator.settings import PRIVILEGED, Settings
from slinky.operator.validation.lines import DBD_CONF, SLURM_CONF, line_problems, node_problems, partition_problems
from slinky.operator.validation.naming import host_prefix_problem, is_label, is_object_name

__all__ = ["accounting_problems", "controller_problems", "loginset_problems", "nodeset_problems", "token_problems"]

SHORTEST_LIFETIME = 60.0
_SHARE = re.compile(r"[1-9]\d*%")
_CLUSTER = re.compile(r"[A-Za-z0-9_-]+")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]*\$?")


def controller_problems(found: Controller) -> Iterator[Problem]:
    spec = found.spec
    name = found.cluster_name
    if len(name) > CLUSTER_NAME_LENGTH:
        said = "is" if spec.cluster_name else "is not given, so it would be"
        yield Problem(
            "spec.clusterName",
            f"{said} {name}, {len(name)} characters; the accounting database takes {CLUSTER_NAME_LENGTH}: choose a shorter one",
        )
    elif not _CLUSTER.fullmatch(name):
        yield Problem("spec.clusterName", f'is "{name}"; Slurm takes letters, digits, _ and - in it')
    if spec.ha.enabled:
        yield Problem("spec.ha.enabled", HA, UNSUPPORTED_FIELD)
    yield from _two_names(spec.jwt_key_ref, spec.jwt_hs256_key_ref)
    if spec.external:
        yield from _external(spec.external_config.host if spec.external_config else "")
        for field, reference, key in (("slurmKeyRef", spec.slurm_key_ref, "slurm.key"), ("jwtKeyRef", spec.jwt_reference, "jwt.key")):
            if reference is None:
                yield Problem(
                    f"spec.{field}",
                    f"is missing; external is true, so it has to name the Secret with that cluster's {key}: one of ours would fit no lock there",
                )
    yield from line_problems(spec.extra_conf, SLURM_CONF, SLURM_PARAMETERS, "spec.extraConf")


def accounting_problems(found: Accounting) -> Iterator[Problem]:
    spec = found.spec
    yield from _two_names(spec.jwt_key_ref, spec.jwt_hs256_key_ref)
    if spec.external:
        yield from _external(spec.external_config.host if spec.external_config else "")
        return
    if spec.storage_config is None or not spec.storage_config.host:
        yield Problem(
            "spec.storageConfig.host",
            "is missing; it has to say where the database is (or external be true, where slurmdbd runs elsewhere)",
        )
    if spec.storage_config and spec.storage_config.tls:
        tls = spec.storage_config.tls
        if (tls.certificate_ref is None) != (tls.key_ref is None):
            yield Problem("spec.storageConfig.tls", "has one of certificateRef and keyRef; give both, or none to show no certificate")
    yield from line_problems(spec.extra_conf, DBD_CONF, SLURMDBD_PARAMETERS, "spec.extraConf")


def loginset_problems(found: LoginSet | RestApi) -> Iterator[Problem]:
    yield from _member(found)


def nodeset_problems(found: NodeSet) -> Iterator[Problem]:
    spec = found.spec
    yield from _member(found)
    if spec.taint_kube_nodes:
        yield Problem("spec.taintKubeNodes", TAINTS, UNSUPPORTED_FIELD)
    most = spec.update_strategy.rolling_update.max_unavailable
    if not (most > 0 if isinstance(most, int) else _SHARE.fullmatch(most)):
        yield Problem(
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            f"is {most}; it has to be a whole number of 1 or more, or a share such as 25%: with none, no worker could ever be replaced",
        )
    hostname = spec.template.spec.get("hostname")
    if hostname is not None and (wrong := host_prefix_problem(str(hostname))):
        yield Problem("spec.template.spec.hostname", wrong)
    yield from node_problems(spec.extra_conf, "spec.extraConf")
    yield from partition_problems(spec.partition.config, "spec.partition.config")
    yield from _claims(spec.volume_claim_templates or [])


def token_problems(found: Token, settings: Settings) -> Iterator[Problem]:
    spec, meta = found.spec, found.metadata
    yield from _two_names(spec.jwt_key_ref, spec.jwt_hs256_key_ref)
    if spec.jwt_reference is None:
        yield Problem("spec.jwtKeyRef", "is missing; it has to name the Secret and the key with the cluster's jwt.key")
    if not _USER.fullmatch(spec.username):
        yield Problem("spec.username", f'is "{spec.username}"; it has to name a Slurm user')
    elif not settings.allows_token(meta.namespace, spec.username):
        yield Problem("spec.username", _not_allowed(meta.namespace, spec.username))
    try:
        if seconds_of(spec.lifetime) < SHORTEST_LIFETIME:
            yield Problem(
                "spec.lifetime",
                f"is {spec.lifetime}; it has to be {SHORTEST_LIFETIME:g}s or more, or the token would be over before it is used",
            )
    except ValueError as error:
        yield Problem("spec.lifetime", str(error))
    yield from _token_secret(found)


def _token_secret(found: Token) -> Iterator[Problem]:
    said = found.spec.secret_ref
    name = (said.name if said else "") or token_secret(found.metadata.name, found.spec.username)
    if not is_object_name(name) and _USER.fullmatch(found.spec.username):
        yield Problem(
            "spec.secretRef.name",
            f'the Secret would be called "{name}", which Kubernetes does not allow (small letters, digits, - and .); give it a name here',
        )
    elif found.spec.jwt_reference is not None and name == found.spec.jwt_reference.name:
        yield Problem(
            "spec.secretRef.name", f"is {name}, the Secret that jwtKeyRef names: the token would be written over the key; choose another"
        )


def _not_allowed(namespace: str, user: str) -> str:
    if user in PRIVILEGED:
        return f"is {user}, to whom Slurm obeys in everything; only the operator's settings can allow that, by name (allowedTokenUsers.{namespace})"
    return f"is {user}, and Tokens in namespace {namespace} are not allowed for that user; the operator's settings say for whom (allowedTokenUsers)"


def _member(found: NodeSet | LoginSet | RestApi) -> Iterator[Problem]:
    if not found.spec.controller_ref.name:
        yield Problem("spec.controllerRef.name", "is empty; it has to name a Controller in this namespace")


def _external(host: str) -> Iterator[Problem]:
    if not host:
        yield Problem("spec.externalConfig.host", "is missing; external is true, so it has to say where the daemon listens")


def _two_names(newer: KeyReference | None, older: KeyReference | None) -> Iterator[Problem]:
    if newer and older and (newer.name, newer.key) != (older.name, older.key):
        yield Problem("spec.jwtHs256KeyRef", "says another key than jwtKeyRef, of which it is the older name; take it out")


def _claims(templates: list[dict[str, Any]]) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, template in enumerate(templates):
        path = f"spec.volumeClaimTemplates[{number}]"
        meta = template.get("metadata")
        name = meta.get("name") if isinstance(meta, Mapping) else None
        if not isinstance(name, str) or not is_label(name):
            yield Problem(
                f"{path}.metadata.name",
                f'is "{name or ""}"; it has to be a name of small letters, digits and -, for the volume is called after it',
            )
        elif name in seen:
            yield Problem(f"{path}.metadata.name", f"is {name}, as of another of them; give each a name of its own")
        else:
            seen.add(name)
        if not isinstance(template.get("spec"), Mapping):
            yield Problem(f"{path}.spec", "is missing; it has to be a PersistentVolumeClaim's, with accessModes and resources")
