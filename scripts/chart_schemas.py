#!/usr/bin/env python3
"""Writes values.schema.json of each chart in charts/: `scripts/chart_schemas.py`; with --check it only says which is not as it would be written.

Comes in: what is said below of each chart's values, and the settings' types, which say what `config` may hold. Goes out: a JSON schema a chart, by which helm refuses a value that it does not know, with its name. What must stay true: whatever Kubernetes judges itself
(pods, containers, Services) passes as it is.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from slinky.bridge.settings import Settings as BridgeSettings
from slinky.exporter.alerts import ALERTS
from slinky.exporter.settings import Settings as ExporterSettings
from slinky.operator.settings import Settings as OperatorSettings

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.writing import CHECKOUT, write_or_check

CHARTS = CHECKOUT / "charts"
Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
YES_OR_NO: Schema = {"type": "boolean"}
WHOLE: Schema = {"type": "integer"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
ANY_MAPPING: Schema = {"type": "object"}  # Kubernetes judges it
ANY_LIST: Schema = {"type": "array"}
TEXTS: Schema = {"type": "array", "items": TEXT}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
PORTS: Schema = {"type": "array", "items": PORT}
SHARE: Schema = {"type": ["integer", "string"]}  # a number of pods, or a share such as 25%


def mapping(**values: Schema) -> Schema:
    """Keys that are known, and no others."""
    return {"type": "object", "additionalProperties": False, "properties": dict(sorted(values.items()))}


def one_of(*texts: str) -> Schema:
    return {"enum": list(texts)}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def by_name(schema: Schema) -> Schema:
    """A mapping whose keys are the user's."""
    return {"type": "object", "additionalProperties": or_null(schema)}


def settings(kind: type, *said_elsewhere: str) -> Schema:
    """What the configuration file may hold, whose types are the program's own; but for what another value says."""
    (found,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    flat: Schema = _without_references(found, parts)
    for path in said_elsewhere:
        *folders, last = path.split(".")
        place = flat
        for folder in folders:
            place = place["properties"][folder]
        del place["properties"][last]
    return dict(_tidy(flat))


def _without_references(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_without_references(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _without_references(parts[schema["$ref"].rpartition("/")[2]], parts)
    return {key: _without_references(value, parts) for key, value in schema.items()}


def _tidy(schema: Any) -> Any:
    """Without titles, words and defaults, which the reference of the settings has."""
    if isinstance(schema, list):
        return [_tidy(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "properties" in schema:
        kept = {key: value for key, value in schema.items() if key in ("type", "required", "additionalProperties")}
        properties = {name: _tidy(value) for name, value in sorted(schema["properties"].items())}
        return {**kept, "additionalProperties": False, "properties": properties}
    return {key: _tidy(value) for key, value in schema.items() if key not in ("title", "description", "default")}


# What several charts have

TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
NAMES: Schema = dict.fromkeys(
    ("nameOverride", "fullnameOverride", "namespaceOverride"),
    TEXT_OR_NULL,
)
IMAGE = mapping(
    repository=TEXT,
    tag=TEXT_OR_NULL,
    digest=TEXT_OR_NULL,
    pullPolicy=TEXT,
)
OWN_IMAGE: Schema = {"anyOf": [TEXT, IMAGE]}
# As zap's levels; a number of 1 or more means debug.
LOG_LEVEL: Schema = {
    "anyOf": [
        one_of("error", "warn", "info", "debug"),
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": "^[0-9]+$"},
    ]
}
METRICS_PORT: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 65535},
        {"type": "string", "pattern": "^(0|[1-9][0-9]{0,4})$"},
        {"type": "null"},
    ]
}
PULL_POLICY = one_of("", "Always", "IfNotPresent", "Never")
BUDGET = mapping(enabled=YES_OR_NO, minAvailable=SHARE, maxUnavailable=or_null(SHARE))
HOURS: Schema = {"type": "string", "pattern": "^[1-9][0-9]*h(0m)?(0s)?$"}
CERT_MANAGER = mapping(enabled=YES_OR_NO, secretName=TEXT, duration=HOURS, renewBefore=TEXT, issuerRef=ANY_MAPPING)
TLS = mapping(existingSecret=TEXT, caBundle=TEXT)
METADATA = mapping(labels=LABELS, annotations=LABELS)
KEY = mapping(name=TEXT, key=TEXT)
SERVICE_MONITOR = mapping(enabled=YES_OR_NO, interval=TEXT, scrapeTimeout=TEXT, labels=LABELS, annotations=LABELS)
SERVICES: Schema = {
    **NAMES,
    "image": IMAGE,
    "imagePullPolicy": PULL_POLICY,
    "imagePullSecrets": ANY_LIST,
    "priorityClassName": TEXT,
    "extraObjects": ANY_LIST,
    "global": ANY_MAPPING,
    "metrics": mapping(serviceMonitor=SERVICE_MONITOR),
    "networkPolicy": mapping(enabled=YES_OR_NO, metricsFrom=ANY_LIST, apiServerPorts=PORTS, slurmPorts=PORTS, extraEgress=ANY_LIST),
    "slinky-parts": ANY_MAPPING,
}
PROCESS: Schema = {
    "image": OWN_IMAGE,
    "imagePullPolicy": PULL_POLICY,
    "podSecurityContext": ANY_MAPPING,
    "securityContext": ANY_MAPPING,
    "serviceAccount": mapping(create=YES_OR_NO, name=TEXT, annotations=LABELS),
    "pdb": BUDGET,
    "resources": ANY_MAPPING,
    "nodeSelector": LABELS,
    "affinity": ANY_MAPPING,
    "tolerations": ANY_LIST,
    "topologySpreadConstraints": ANY_LIST,
    "priorityClassName": TEXT,
    "podLabels": LABELS,
    "podAnnotations": LABELS,
    "logLevel": LOG_LEVEL,
    "logFormat": one_of("text", "json"),
    "healthPort": PORT,
}
REPLICAS: Schema = {"type": "integer", "minimum": 0}
FAILURE = one_of("Fail", "Ignore")
WEBHOOK_SETTINGS = tuple(
    f"admission.{key}" for key in ("secret", "service", "configuration", "port", "failOpen", "certificateFile", "keyFile", "caFile")
)
OPERATOR_WEBHOOK_SETTINGS = (
    "admission.timeoutSeconds",
    "admission.matchPolicy",
    "admission.matchConditions",
    "admission.namespaceSelector",
)
SAID = ("namespace", "healthPort", "leader.elect", "leader.name", *WEBHOOK_SETTINGS)


# Values of the original's charts that have no effect here: accepted, and named in the NOTES.
WORKERS = ("accounting", "controller", "loginset", "nodeset", "restapi", "token", "slurmclient")
OPERATOR_WITHOUT_EFFECT: Schema = {
    **dict.fromkeys((f"{kind}Workers" for kind in WORKERS), or_null(WHOLE)),
    "metricsSecure": YES_OR_NO,
    "profile": YES_OR_NO,
    "profileAddr": TEXT,
}
WEBHOOK_WITHOUT_EFFECT: Schema = {
    "metricsSecure": YES_OR_NO,
    "podsBinding": YES_OR_NO,
    "leaderElection": YES_OR_NO,
    "mutating": ANY_MAPPING,
}


def slurm_operator() -> Schema:
    namespaces: Schema = {"anyOf": [TEXT, TEXTS]}
    conditions: Schema = {"type": "array", "items": mapping(name=TEXT, expression=TEXT)}
    said = ("namespaces", "propagatedNodeConditions", "metricsPort", *OPERATOR_WEBHOOK_SETTINGS)
    return mapping(
        **SERVICES,
        **{"slurm-operator-crds": ANY_MAPPING},
        crds=mapping(enabled=YES_OR_NO),
        operator=mapping(
            **PROCESS,
            **OPERATOR_WITHOUT_EFFECT,
            enabled=YES_OR_NO,
            replicas=REPLICAS,
            leaderElection=YES_OR_NO,
            namespaces=namespaces,
            metricsPort=METRICS_PORT,
        ),
        webhook=mapping(
            **PROCESS,
            **WEBHOOK_WITHOUT_EFFECT,
            enabled=YES_OR_NO,
            replicas=REPLICAS,
            failurePolicy=FAILURE,
            timeoutSeconds={"type": "integer", "minimum": 2, "maximum": 30},
            namespaces=namespaces,
            validating=mapping(
                failurePolicy=one_of("", "Fail", "Ignore"),
                matchPolicy=one_of("Equivalent", "Exact"),
                matchConditions=conditions,
                namespaceSelector=ANY_MAPPING,
            ),
            serverPort=PORT,
            metricsPort=METRICS_PORT,
            tls=TLS,
        ),
        certManager=CERT_MANAGER,
        propagatedNodeConditions=TEXTS,
        config=settings(OperatorSettings, *said, *SAID),
        rbac=mapping(create=YES_OR_NO, secrets=one_of("cluster", "namespaced"), secretsNamespaces=TEXTS),
    )


def slurm_bridge() -> Schema:
    said = ("schedulerName", "partition", "mcsLabel", "slurmRestApi", "managedNamespaces", "managedNamespaceSelector", "shadow")
    return mapping(
        **SERVICES,
        scheduler=mapping(
            **PROCESS,
            replicaCount=REPLICAS,
            leaderElect=YES_OR_NO,
            verbosity=or_null(WHOLE),
        ),
        controllers=ANY_MAPPING,  # the original's second program: accepted, without effect
        schedulerConfig=mapping(schedulerName=TEXT, partition=TEXT, mcsLabel=TEXT),
        admission=mapping(
            **PROCESS,
            enabled=YES_OR_NO,
            replicas=REPLICAS,
            failurePolicy=FAILURE,
            serverPort=PORT,
            tls=TLS,
            certManager=CERT_MANAGER,
            managedNamespaces=TEXTS,
            managedNamespaceSelector=mapping(matchLabels=LABELS, matchExpressions=ANY_LIST),
        ),
        sharedConfig=mapping(slurmRestApi=TEXT, slurmJwtSecret={"anyOf": [TEXT, KEY]}, slurmConf=TEXT),
        config=settings(BridgeSettings, "slurm.tokenFile", "admission.bridgeUsers", *said, *SAID),
        shadow=YES_OR_NO,
        keyPolicy=mapping(enabled=YES_OR_NO, extraUsers=TEXTS),
        podPolicy=mapping(enabled={"type": ["boolean", "null"]}),
        rbac=mapping(create=YES_OR_NO),
        uninstall=mapping(
            enabled=YES_OR_NO, running=one_of("keep", "evict", "wait"), waiting=one_of("keep", "delete"), timeout={"type": "number"}
        ),
        test=mapping(namespace=TEXT, resources=ANY_MAPPING),
    )


def slurm_exporter() -> Schema:
    dashboards = mapping(enabled=YES_OR_NO, namespace=TEXT, labels=LABELS, annotations=LABELS)
    alerts: Schema = {"type": "array", "items": one_of(*(alert.name for alert in ALERTS))}
    rules = mapping(enabled=YES_OR_NO, without=alerts, labels=LABELS, annotations=LABELS)
    return mapping(
        **SERVICES | {"metrics": mapping(serviceMonitor=SERVICE_MONITOR, prometheusRule=rules)},
        exporter=mapping(**PROCESS, replicas=REPLICAS),
        sharedConfig=mapping(slurmRestApi=TEXT, slurmJwtSecret={"anyOf": [TEXT, KEY]}),
        originalNames=YES_OR_NO,
        config=settings(ExporterSettings, "slurmRestApi", "slurm.tokenFile", "healthPort", "originalNames"),
        dashboards=dashboards,
    )


SCRIPTS = {"type": "object", "additionalProperties": TEXT}
PARAMETERS: Schema = {"type": ["object", "null"]}  # Slurm's keys
EXTRA: Schema = {"extraConf": or_null(TEXT), "extraConfMap": PARAMETERS}
PARTITION: Schema = {"enabled": YES_OR_NO, "config": or_null(TEXT), "configMap": PARAMETERS}
ADDRESS = mapping(host=TEXT, port=or_null(WHOLE))
SLURM_SERVICE = mapping(metadata=METADATA, spec=ANY_MAPPING, port=WHOLE, nodePort=WHOLE)
POD: Schema = {"metadata": METADATA, "podSpec": ANY_MAPPING}
NODESET = mapping(
    **EXTRA,
    **POD,
    enabled=YES_OR_NO,
    scalingMode=one_of("StatefulSet", "DaemonSet"),
    replicas=REPLICAS,
    slurmd=ANY_MAPPING,
    partition=mapping(**PARTITION),
    ssh=mapping(enabled=YES_OR_NO, extraSshdConfig=or_null(TEXT)),
    updateStrategy=ANY_MAPPING,
    ordinalPadding=WHOLE,
    pinToNode=YES_OR_NO,
    workloadDisruptionProtection=YES_OR_NO,
    pruneSlurmNodeRecords=one_of("Never", "NodeNotFound"),
    oversubscribeNode=YES_OR_NO,
    drainDeadlineSeconds=WHOLE,
    volumeClaimTemplates=ANY_LIST,
    persistentVolumeClaimRetentionPolicy=ANY_MAPPING,
    revisionHistoryLimit=WHOLE,
    minReadySeconds=WHOLE,
    taintKubeNodes={"const": False},
    logfile=ANY_MAPPING,
)
LOGINSET = mapping(
    **POD,
    enabled=YES_OR_NO,
    replicas=REPLICAS,
    login=ANY_MAPPING,
    strategy=ANY_MAPPING,
    rootSshAuthorizedKeys=or_null(TEXT),
    extraSshdConfig=or_null(TEXT),
    service=SLURM_SERVICE,
    initconf=ANY_MAPPING,
)
SCRIPT_KINDS = ("prolog", "epilog", "prologSlurmctld", "epilogSlurmctld")


def slurm() -> Schema:
    scripts = {f"{kind}Scripts": SCRIPTS for kind in SCRIPT_KINDS}
    references = {f"{kind}ScriptRefs": {"type": "array", "items": {"anyOf": [TEXT, mapping(name=TEXT)]}} for kind in SCRIPT_KINDS}
    key = mapping(create=YES_OR_NO, annotations=LABELS, secretRef=KEY)
    monitor = mapping(enabled=YES_OR_NO, labels=LABELS, annotations=LABELS, interval=TEXT, scrapeTimeout=TEXT, endpoints=ANY_LIST)
    head: Schema = {"external": YES_OR_NO, "externalConfig": ADDRESS, **EXTRA, **POD, "service": SLURM_SERVICE}
    storage = mapping(host=TEXT, port=WHOLE, database=TEXT, username=TEXT, passwordKeyRef=KEY, tls=ANY_MAPPING)
    return mapping(
        **NAMES,
        **scripts,
        **references,
        **{"global": ANY_MAPPING},
        imagePullSecrets=ANY_LIST,
        imagePullPolicy=PULL_POLICY,
        priorityClass=mapping(
            enabled=YES_OR_NO, create=YES_OR_NO, name=TEXT, description=or_null(TEXT), value=WHOLE, preemptionPolicy=TEXT
        ),
        operator=mapping(grantSecrets=YES_OR_NO, name=TEXT, namespace=TEXT, serviceAccount=TEXT),
        slurmKey=key,
        jwtKey=key,
        jwksKeys=mapping(enabled=YES_OR_NO, configMapRef=KEY),
        clusterName=or_null(TEXT),
        configFiles=SCRIPTS,
        controller=mapping(
            **head,
            slurmctld=ANY_MAPPING,
            persistence=ANY_MAPPING,
            metrics=mapping(enabled=YES_OR_NO, serviceMonitor=monitor),
            inplaceReconfigure=YES_OR_NO,
            reconfigure=ANY_MAPPING,
            logfile=ANY_MAPPING,
            ha=ANY_MAPPING,  # refused by the template if it is enabled
        ),
        asciiArt=YES_OR_NO,
        vendor=or_null(ANY_MAPPING),  # refused by the template if something in it is enabled
        restapi=mapping(**POD, replicas=REPLICAS, slurmrestd=ANY_MAPPING, pdb=BUDGET, service=SLURM_SERVICE),
        accounting=mapping(**head, enabled=YES_OR_NO, slurmdbd=ANY_MAPPING, storageConfig=storage),
        sssd=mapping(secretRef=KEY, conf=or_null(TEXT)),
        loginsetDefaults=LOGINSET,
        loginsets=by_name(LOGINSET),
        nodesetDefaults=NODESET,
        nodesets=by_name(NODESET),
        partitions=by_name(mapping(**PARTITION, nodesets=TEXTS)),
        test=mapping(image={"anyOf": [TEXT, IMAGE]}, partition=TEXT, seconds=WHOLE),
        extraObjects=ANY_LIST,
    )


SCHEMAS = {
    "slurm-operator-crds": lambda: mapping(**{"global": ANY_MAPPING}),
    "slurm-operator": slurm_operator,
    "slurm-bridge": slurm_bridge,
    "slurm": slurm,
    "slurm-exporter": slurm_exporter,
}


def written() -> dict[Path, str]:
    """Each file, as it is to be."""
    found = {}
    for chart, schema in SCHEMAS.items():
        document = {"$schema": "http://json-schema.org/draft-07/schema#", **schema()}
        found[CHARTS / chart / "values.schema.json"] = json.dumps(document, indent=1) + "\n"
    return found


if __name__ == "__main__":
    sys.exit(write_or_check(written()))
