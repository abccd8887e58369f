"""A second namespace that lends workers to the same slurmctld elsewhere, under the same host names."""

import json

from tests.operator_sandbox.cluster import EXAMPLES, Cluster

__all__ = ["another_namespace_lends_workers_of_the_same_names"]

TENANT = "tenant"


def another_namespace_lends_workers_of_the_same_names(cluster: Cluster) -> None:
    """Beside examples/operator/external.yaml with its two workers: only the third of `tenant` comes, and the Slurm nodes stay those of the first."""
    tenant = f"--namespace={TENANT}"
    cluster.kubectl("create", "namespace", TENANT)
    for name in ("slurm-key", "slurm-jwt"):
        copy = cluster.get("secret", name) | {"metadata": {"name": name}}
        cluster.kubectl("apply", tenant, "--filename=-", written=json.dumps(copy))
    written = (EXAMPLES / "external.yaml").read_text().replace("namespace: slurm}", f"namespace: {TENANT}}}")
    cluster.kubectl("apply", tenant, "--filename=-", written=written.replace("replicas: 2", "replicas: 3"))

    def told() -> str:
        jsonpath = "jsonpath={.status.conditions[?(@.type=='Degraded')].message}"
        return cluster.kubectl("get", tenant, "nodeset", "burst", f"--output={jsonpath}")

    def pods() -> list[str]:
        found = cluster.kubectl("get", tenant, "pods", "--selector=app.kubernetes.io/instance=burst", "--output=name")
        return sorted(name.removeprefix("pod/") for name in found.split())

    wanted = "1 of 3 workers available; Slurm node burst-0 is a worker of NodeSet burst of namespace slurm"
    cluster.until("the names were taken", lambda: wanted in told())
    assert pods() == ["burst-2"]
    assert cluster.condition("nodeset", "burst", "Ready")[0] == "True", "the first is left in peace"
    assert cluster.condition("nodeset", "burst", "Degraded")[0] == "False"
    cluster.kubectl("scale", "nodeset", "burst", "--replicas=1")
    cluster.until("a name that is free again is taken up", lambda: pods() == ["burst-1", "burst-2"])
    cluster.kubectl("delete", tenant, "nodeset", "burst")
    cluster.kubectl("delete", "namespace", TENANT, "--wait=false")
