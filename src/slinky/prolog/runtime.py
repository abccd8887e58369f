"""The pods of this node, as its container runtime has them: containerd, CRI-O, any that speaks CRI v1.

Comes in: the runtime's socket. Goes out: one `PodHere` for each pod that has a sandbox, with the bridge's job id where its labels have one. The kubelet hands a pod's labels to the runtime when it starts the pod, and nobody can change them there. What must stay true: a pod is
alive until its sandbox was stopped and all its containers have exited: what is created may yet run.
"""

from collections.abc import Iterator

from slinky.prolog.decision import PodHere
from slinky.prolog.grpc import RuntimeSilentError, call

__all__ = ["JOB_LABEL", "NODE_ANNOTATION", "pods_from", "pods_of"]

JOB_LABEL = "scheduler.slinky.slurm.net/slurm-jobid"
NODE_ANNOTATION = "slinky.slurm.net/slurm-node"  # written by the bridge's Binding, so every pod that it placed has it from its start
SERVICE = "/runtime.v1.RuntimeService/"
READY, EXITED = 0, 2


def pods_of(socket: str, seconds: float) -> list[PodHere]:
    """Raises RuntimeSilentError."""
    sandboxes = call(socket, SERVICE + "ListPodSandbox", b"", seconds)
    containers = call(socket, SERVICE + "ListContainers", b"", seconds)
    try:
        return pods_from(sandboxes, containers)
    except (ValueError, IndexError) as error:
        raise RuntimeSilentError(f"{socket}: the runtime's answer cannot be read: {error}") from error


def pods_from(sandboxes: bytes, containers: bytes) -> list[PodHere]:
    """A pod may have had several sandboxes: it is alive if one of them is, or one of their containers.

    A pod that has the label alone was not placed by the bridge: somebody copied the label into a template. It holds no job.
    """
    busy = {_string(found, 2) for found in _messages(containers, 1) if _number(found, 6) != EXITED}
    pods: dict[str, PodHere] = {}
    for found in _messages(sandboxes, 1):
        about = next(_messages(found, 2), b"")
        uid = _string(about, 2)
        alive = _number(found, 3) == READY or _string(found, 1) in busy
        label = next((_string(entry, 2) for entry in _messages(found, 5) if _string(entry, 1) == JOB_LABEL), "")
        placed = any(_string(entry, 1) == NODE_ANNOTATION and _string(entry, 2) for entry in _messages(found, 6))
        job_id = int(label) if label.isdecimal() and placed else 0
        before = pods.get(uid)
        pods[uid] = PodHere(uid, f"{_string(about, 3)}/{_string(about, 1)}", job_id, alive or (before is not None and before.alive))
    return list(pods.values())


# Protocol buffers, as far as they are needed: fields by their numbers.


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
        elif kind == 2:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise ValueError("it ends too early")
            yield number, message[at : at + length]
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"field of kind {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    return (value for found, value in _fields(message) if found == number and isinstance(value, bytes))


def _string(message: bytes, number: int) -> str:
    return next(_messages(message, number), b"").decode()


def _number(message: bytes, number: int) -> int:
    return next((value for found, value in _fields(message) if found == number and isinstance(value, int)), 0)
