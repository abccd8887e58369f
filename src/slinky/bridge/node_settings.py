"""What the configuration says about nodes: which of them Slurm gets to know, as what, and how the two sides follow each other's states."""

from typing import Annotated, Literal

import msgspec

from slinky.settings import Help, Section

__all__ = ["NodeSettings", "TaintEffect"]

TaintEffect = Literal["NoSchedule", "NoExecute", "none"]


class NodeSettings(Section, msgspec.Struct, frozen=True):
    """Kubernetes nodes with label `scheduler.slinky.slurm.net/external-node` are Slurm's external nodes."""

    register: Annotated[
        bool,
        Help("Register labelled nodes in Slurm and remove them again, and keep the states of nodes on both sides in step."),
    ] = True
    features: Annotated[
        list[str],
        Help(
            "Features of nodes whose annotation `scheduler.slinky.slurm.net/external-node-partitions` names none; the default partition's name where this is empty."
        ),
    ] = []
    feature_labels: Annotated[
        dict[str, str],
        Help(
            "Node label → prefix: nodes get the feature `PREFIX=VALUE`, and what pods ask of that label is told to Slurm as a constraint instead of a list of nodes to leave out."
        ),
    ] = {}
    topology_labels: Annotated[
        dict[str, str],
        Help(
            "Node label → a topology of Slurm's: nodes without annotation `topology.slinky.slurm.net/spec` get the topology `NAME:VALUE`. For example `topology.kubernetes.io/rack: topo-switch`."
        ),
    ] = {}
    sockets_label: Annotated[
        str,
        Help(
            "Node label that tells the number of sockets. Where it is not there, or does not divide the CPUs that Slurm gets, a node is one socket."
        ),
    ] = ""
    threads_label: Annotated[
        str,
        Help(
            "Node label that tells the number of threads of a core. Slurm then gives away whole cores: a pod of one CPU costs as many CPUs as a core has threads. Where it is not there, each CPU is a core of one thread."
        ),
    ] = ""
    reserved_cpus: Annotated[int, Help("CPUs of each node's allocatable that are kept from Slurm, for DaemonSets.")] = 0
    reserved_memory_mib: Annotated[int, Help("The same for memory, in MiB.")] = 0
    sink: Annotated[
        str,
        Help(
            "`HOST:PORT` where `slinky sink` listens: nodes are registered with it as their address. GraceTime, suspend and gangs that give nodes back need one; without it the bridge does nothing that makes slurmctld speak to a node."
        ),
    ] = ""
    gone_seconds: Annotated[
        float,
        Help(
            "Pods that are being deleted on a node which has not been Ready for this long are let go, and their share of the job with them; so are all pods of a node that has been deleted for this long."
        ),
    ] = 300.0
    settle_seconds: Annotated[
        float,
        Help(
            "A registered node whose CPUs, memory or GPUs change is registered anew once they have been other for this long: a device plugin that restarts has none for a while."
        ),
    ] = 30.0
    max_renewing: Annotated[
        int | str,
        Help(
            "How many registered nodes may be drained at once to be registered anew: a number, or a share of them such as `5%`; at least one."
        ),
    ] = "5%"
    not_ready_seconds: Annotated[
        float,
        Help(
            "A node that is not ready for this long is drained in Slurm. One that was deleted in Kubernetes while it has jobs is put down after the same time."
        ),
    ] = 40.0
    flap_changes: Annotated[
        int, Help("A node that became ready or not ready this often within `flapSeconds` stays drained until it is calm.")
    ] = 6
    flap_seconds: Annotated[
        float, Help("The time in which those changes are counted, and for which it must not change any more to be calm.")
    ] = 600.0
    taint: Annotated[
        TaintEffect,
        Help(
            "Effect of the taint `slinky.slurm.net/managed-node=SCHEDULERNAME` on registered nodes, which keeps other schedulers' pods away: `NoSchedule` leaves those that run there alone, `NoExecute` evicts them, `none` is no taint."
        ),
    ] = "NoSchedule"

    def renewing_at_once(self, registered: int) -> int:
        """`maxRenewing` as a number."""
        said = self.max_renewing
        number = said if isinstance(said, int) else registered * int(said.removesuffix("%")) // 100
        return max(1, number)
