"""Names that would not do as names of what is made from them: Services, pods, host names, Slurm's nodes.

Pure. An object's name may be long and have dots; a Service's and a host's may not.
"""

import re
from collections.abc import Iterator

from slinky.operator.kinds.reading import Problem

__all__ = ["LABEL_LENGTH", "host_prefix_problem", "is_label", "is_object_name", "name_problems"]

LABEL_LENGTH = 63
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9][-a-z0-9]*")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

# The longest names that are made of an object's own; {} is where it stands.
LONGEST_CHILD = {
    "Controller": "{}-controller-internal",
    "Accounting": "{}-accounting",
    "RestApi": "{}-restapi",
    "LoginSet": "{}",
    "NodeSet": "{}-00000",
}


def name_problems(kind: str, name: str) -> Iterator[Problem]:
    pattern = LONGEST_CHILD.get(kind)
    if pattern is None or not name:
        return
    room = LABEL_LENGTH - len(pattern.format(""))
    if len(name) > room:
        yield Problem(
            "metadata.name",
            f"is {len(name)} characters long; it can be {room} at most, for what is made of it ({pattern.format('NAME')}) has to fit in {LABEL_LENGTH}",
        )
    elif kind == "NodeSet" and not _LABEL.fullmatch(name):
        yield Problem("metadata.name", f'is "{name}"; it can have only small letters, digits and - in it, for hosts are called after it')
    elif kind != "NodeSet" and not _SERVICE.fullmatch(name):
        yield Problem(
            "metadata.name",
            f'is "{name}"; it has to begin with a letter and have only small letters, digits and - in it, for a Service is called after it',
        )


def host_prefix_problem(prefix: str) -> str:
    """Of a host name to which a number is added; empty where nothing is wrong."""
    if not _PREFIX.fullmatch(prefix):
        return f'is "{prefix}"; it has to begin a host name: small letters, digits and -, no dots, such as gpu-'
    if len(prefix) > LABEL_LENGTH - 5:
        return f"is {len(prefix)} characters long; with a worker's number behind it, a host name can have {LABEL_LENGTH}"
    return ""


def is_label(text: str) -> bool:
    return len(text) <= LABEL_LENGTH and _LABEL.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Of a Secret or a ConfigMap."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None
