"""Texts that become lines of Slurm's files: whether Slurm could read them at all, and whether they take what is the operator's to say.

Pure. What must stay true: only keys whose other value would cut the cluster off from the operator or from its own daemons are refused; everything else is the administrator's.
"""

from collections.abc import Iterable, Iterator, Mapping

from slinky.operator.conf.parameters import unknown
from slinky.operator.conf.text import Line, Pair, parse
from slinky.operator.kinds.reading import Problem

__all__ = ["DBD_CONF", "SLURM_CONF", "line_problems", "node_problems", "partition_problems"]

# Key → what to do instead.
SLURM_CONF = {
    "ClusterName": "set clusterName",
    "SlurmctldHost": "it is this cluster's own pod",
    "SlurmctldAddr": "it is this cluster's own Service",
    "SlurmctldPort": "set service.port for the port that others see",
    "SlurmdPort": "the workers' Service has it",
    "SlurmUser": "it is the images'",
    "StateSaveLocation": "set persistence",
    "AuthType": "keys are by auth/slurm (slurmKeyRef)",
    "CredType": "keys are by cred/slurm (slurmKeyRef)",
}
DBD_CONF = {
    "DbdHost": "it is this Accounting's own pod",
    "DbdPort": "set service.port for the port that others see",
    "SlurmUser": "it is the image's",
    "AuthType": "keys are by auth/slurm (slurmKeyRef)",
    "StorageHost": "set storageConfig.host",
    "StoragePort": "set storageConfig.port",
    "StorageLoc": "set storageConfig.database",
    "StorageUser": "set storageConfig.username",
    "StoragePass": "set storageConfig.passwordKeyRef, so that it stands in a Secret",
    "StorageType": "it is MySQL's, the only one there is",
}
NODE = {
    "NodeName": "template.spec.hostname begins it",
    "NodeHostname": "template.spec.hostname begins it",
    "NodeAddr": "the workers' Service says it",
    "Port": "the workers' Service has it",
}
PARTITION = {"PartitionName": "it is the NodeSet's own name", "Nodes": "they are the NodeSet's own"}


def line_problems(text: str, reserved: dict[str, str], known: Mapping[str, str], path: str) -> Iterator[Problem]:
    """Of a text that is added to a file. A word that Slurm does not know is refused: slurmctld would go on, but hand the file out to workers, which cannot start with it."""
    lines = parse(text)
    yield from _unreadable(lines, path)
    yield from _crowded(lines, path)
    for key, meant in unknown(lines, known):
        hint = f"did you mean {meant}?" if meant else "one that only a newer Slurm knows can stand in a file that is included"
        yield Problem(path, f"sets {key}, which Slurm does not know; {hint}")
    # Of a line that describes one thing (a partition, a node), only what it describes is looked at.
    pairs = [pair for line in lines for pair in (line.pairs if line.record is None else line.pairs[:1])]
    yield from _reserved(pairs, reserved, path)


def node_problems(text: str, path: str) -> Iterator[Problem]:
    """Of slurmd's --conf."""
    lines = parse(text)
    yield from _unreadable(lines, path)
    for line in lines:
        if line.include:
            yield Problem(path, f"has `Include {line.include}`; here stand a node's parameters only, such as Gres=gpu:8 Weight=10")
    yield from _reserved(_all(lines), NODE, path)


def partition_problems(text: str, path: str) -> Iterator[Problem]:
    lines = parse(text)
    if len(lines) > 1:
        yield Problem(
            path,
            f"has {len(lines)} lines; a partition is one line: put its parameters beside one another, such as `Default=YES MaxTime=2-0`",
        )
    yield from _unreadable(lines, path)
    yield from _reserved(_all(lines), PARTITION, path)


def _unreadable(lines: Iterable[Line], path: str) -> Iterator[Problem]:
    for line in lines:
        if line.rest:
            yield Problem(
                path,
                f"cannot be read at `{line.rest[:60]}`; Slurm knows lines of KEY=VALUE only, with quotes around values that have spaces",
            )


def _crowded(lines: Iterable[Line], path: str) -> Iterator[Problem]:
    for line in lines:
        if line.record is None and len(line.pairs) > 1:
            yield Problem(path, f"has {line.pairs[0].key} and {line.pairs[1].key} on one line; Slurm takes one on a line")


def _all(lines: Iterable[Line]) -> Iterable[Pair]:
    return (pair for line in lines for pair in line.pairs)


def _reserved(pairs: Iterable[Pair], reserved: dict[str, str], path: str) -> Iterator[Problem]:
    instead = {key.lower(): said for key, said in reserved.items()}
    for pair in pairs:
        if said := instead.get(pair.key.lower()):
            yield Problem(path, f"sets {pair.key}, which is the operator's to say; take it out: {said}")
