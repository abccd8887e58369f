"""Values by which every part of every chart is rendered at least once, one way and the other."""

from typing import Any

PROCESS: dict[str, Any] = {
    "image": {"repository": "registry.example.com/slinky", "tag": "x", "digest": "sha256:" + "0" * 64},
    "imagePullPolicy": "Always",
    "serviceAccount": {"create": True, "annotations": {"a": "b"}},
    "pdb": {"enabled": True, "maxUnavailable": "50%"},
    "resources": {"limits": {"memory": "1Gi"}},
    "nodeSelector": {"a": "b"},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"operator": "Exists"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}
    ],
    "priorityClassName": "system-cluster-critical",
    "podLabels": {"l": "1"},
    "podAnnotations": {"a": "1"},
    "logLevel": "debug",
    "logFormat": "json",
    "healthPort": 9000,
}
SERVICE: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "annotations": {"a": "b"}}},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {}}],
        "extraEgress": [{"ports": [{"port": 1234}]}],
    },
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-extra"}, "data": {"a": "b"}},
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-text'}\n",
    ],
}
BUNDLE = "LS0tLS1CRUdJTi0tLS0tCkFCQwotLS0tLUVORC0tLS0tCg=="
HEAD: dict[str, Any] = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "podSpec": {"tolerations": [{"operator": "Exists"}]}}

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "slurm-operator": {
        "default": {},
        "everything": {
            **SERVICE,
            "crds": {"enabled": True},
            "operator": {**PROCESS, "serviceAccount": {"name": "another"}},
            "webhook": PROCESS,
            "propagatedNodeConditions": ["Hot"],
        },
        "one-namespace": {"operator": {"namespaces": "slurm, research"}},
        "namespaces": {
            "operator": {"namespaces": ["slurm"], "replicas": 1, "leaderElection": False},
            "webhook": {"failurePolicy": "Ignore"},
        },
        "secrets-of-some": {"rbac": {"secrets": "namespaced", "secretsNamespaces": ["slurm"]}},
        "no-webhook": {"webhook": {"enabled": False}},
        "no-rights": {"rbac": {"create": False}, "operator": {"serviceAccount": {"create": False, "name": "there"}}},
        "cert-manager": {"certManager": {"enabled": True}},
        "issuer": {"certManager": {"enabled": True, "secretName": "kept", "issuerRef": {"name": "site", "kind": "ClusterIssuer"}}},
        "own-certificate": {"webhook": {"tls": {"existingSecret": "mine", "caBundle": BUNDLE}}},
        "settings": {"config": {"concurrency": 4, "keepKeys": True, "leader": {"seconds": 30}, "images": {"slurmd": "x/y:1"}}},
        "webhook": {
            "metrics": SERVICE["metrics"],
            "networkPolicy": SERVICE["networkPolicy"],
            "operator": {
                "metricsPort": 9090,
                "image": "registry.example.com/slinky:x",
                "logLevel": 2,
            },
            "webhook": {
                "metricsPort": "0",
                "timeoutSeconds": 12,
                "namespaces": "a, b",
                "validating": {
                    "failurePolicy": "Ignore",
                    "matchPolicy": "Exact",
                    "matchConditions": [{"name": "n", "expression": "true"}],
                },
            },
        },
    },
    "slurm-bridge": {
        "default": {},
        "everything": {
            **SERVICE,
            "scheduler": PROCESS,
            "admission": PROCESS,
            "sharedConfig": {"slurmConf": "ClusterName=a\nSlurmctldHost=b\n", "slurmJwtSecret": "token"},
        },
        "selector": {"admission": {"managedNamespaceSelector": {"matchLabels": {"slurm": "yes"}}}},
        "one-of-each": {"scheduler": {"replicaCount": 1, "leaderElect": False}, "admission": {"replicas": 1, "failurePolicy": "Ignore"}},
        "no-admission": {"admission": {"enabled": False}},
        "no-rights": {"rbac": {"create": False}},
        "shadow": {"shadow": True},
        "no-uninstall": {"uninstall": {"enabled": False}},
        "no-checkpoints": {"config": {"checkpointSignals": False}},
        "cert-manager": {"admission": {"certManager": {"enabled": True}}},
        "own-certificate": {"admission": {"tls": {"existingSecret": "mine"}}},
        "token-of-the-operator": {"sharedConfig": {"slurmJwtSecret": {"name": "bridge-jwt-root", "key": "SLURM_JWT"}}},
        "settings": {
            "config": {"exclusive": True, "nodes": {"taint": "none"}, "policy": {"rules": [{"namespaces": ["a"], "account": "b"}]}}
        },
    },
    "slurm-exporter": {
        "default": {},
        "everything": {
            **SERVICE,
            "metrics": {
                **SERVICE["metrics"],
                "prometheusRule": {
                    "enabled": True,
                    "without": ["SlurmJobsWaitLong"],
                    "labels": {"release": "p"},
                    "annotations": {"a": "b"},
                },
            },
            "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Slurm"}},
            "exporter": PROCESS,
            "originalNames": True,
            "config": {"limits": {"users": 5}, "snapshot": {"share": 0.1}},
        },
        "token-of-the-operator": {"sharedConfig": {"slurmJwtSecret": {"name": "exporter-jwt-root", "key": "SLURM_JWT"}}},
    },
    "slurm": {
        "default": {},
        "everything": {
            "clusterName": "one",
            "imagePullSecrets": [{"name": "registry"}],
            "priorityClass": {"enabled": True, "create": True},
            "operator": {"grantSecrets": True, "name": "op", "namespace": "ops", "serviceAccount": "account"},
            "configFiles": {"gres.conf": "Name=disk Count=2\n"},
            "prologScripts": {"00.sh": "#!/bin/sh\nexit 0\n"},
            "epilogScripts": {"01.sh": "#!/bin/sh\nexit 0\n"},
            "prologSlurmctldScripts": {"02.sh": "#!/bin/sh\nexit 0\n"},
            "epilogSlurmctldScripts": {"03.sh": "#!/bin/sh\nexit 0\n"},
            "prologScriptRefs": ["more", {"name": "others"}],
            "jwksKeys": {"enabled": True, "configMapRef": {"name": "jwks", "key": "jwks.json"}},
            "controller": {
                **HEAD,
                "slurmctld": {"image": "a/b:1", "args": ["-vv"], "resources": {"requests": {"cpu": 1}}},
                "extraConfMap": {"MinJobAge": 2, "SchedulerParameters": ["batch_sched_delay=0", "defer"]},
                "service": {"spec": {"type": "LoadBalancer"}, "port": 7000},
                "metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "endpoints": [{"path": "/metrics/jobs"}]}},
            },
            "restapi": {**HEAD, "replicas": 2, "slurmrestd": {"image": {"repository": "r", "digest": "sha256:" + "1" * 64}}},
            "accounting": {**HEAD, "enabled": True, "extraConfMap": {"CommitDelay": 1}, "storageConfig": {"host": "db"}},
            "sssd": {"conf": "[sssd]\n"},
            "loginsets": {"slinky": {"enabled": True, "replicas": 2, "rootSshAuthorizedKeys": "ssh-ed25519 A", "service": {"port": 2222}}},
            "nodesetDefaults": {"oversubscribeNode": True},
            "nodesets": {
                "slinky": {"enabled": False},
                "gpu": {
                    **HEAD,
                    "enabled": True,
                    "replicas": 0,
                    "extraConfMap": {"Gres": ["gpu:2"], "Weight": 3},
                    "partition": {"enabled": True, "configMap": {"MaxTime": "1:00:00"}},
                    "ssh": {"enabled": True, "extraSshdConfig": "LogLevel VERBOSE"},
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
                    "pinToNode": True,
                    "workloadDisruptionProtection": False,
                },
                "daemons": {"enabled": True, "scalingMode": "DaemonSet", "extraConf": "Weight=1"},
            },
            "partitions": {"both": {"enabled": True, "nodesets": ["gpu", "daemons"], "config": "State=UP"}},
            "extraObjects": SERVICE["extraObjects"],
        },
        "keys-given": {
            "slurmKey": {"create": False, "secretRef": {"name": "k", "key": "slurm.key"}},
            "jwtKey": {"create": False, "secretRef": {"name": "j"}},
            "accounting": {"enabled": True},
        },
        "elsewhere": {
            "controller": {"external": True, "externalConfig": {"host": "head.example.com"}},
            "slurmKey": {"secretRef": {"name": "k"}},
            "jwtKey": {"secretRef": {"name": "j"}},
            "accounting": {"enabled": True, "external": True, "externalConfig": {"host": "dbd.example.com", "port": 6819}},
        },
        "workers": {
            "nodesets": {"slinky": {}},
            "loginsets": {"slinky": {}},
            "partitions": {"all": {"enabled": True}},
        },
    },
}
CASES = [(chart, name) for chart, variants in VARIANTS.items() for name in variants]
