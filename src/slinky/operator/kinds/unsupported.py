"""What the original has and we do not, with what to do instead: refused in these words, and not as a typing mistake.

Pure data, by kind and path.
"""

from slinky.operator.kinds.rules import SCHEDULED_UPDATE, SCHEDULED_UPDATE_TYPE

__all__ = ["UNSUPPORTED", "UNSUPPORTED_WORDS"]

UNSUPPORTED: dict[tuple[str, str], str] = {
    ("NodeSet", "spec.updateStrategy.scheduledUpdate"): SCHEDULED_UPDATE,
    ("Controller", "spec.sssdConfRef"): (
        "slurmctld has no users of its own here; give sssdConfRef to the LoginSets, and to the NodeSets as ssh.sssdConfRef"
    ),
}

UNSUPPORTED_WORDS: dict[tuple[str, str, str], str] = {
    ("NodeSet", "spec.updateStrategy.type", SCHEDULED_UPDATE_TYPE): SCHEDULED_UPDATE,
}
