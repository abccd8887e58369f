"""Names in paths. Pure.

What must stay true: a name from outside is one segment of a path and nothing else, whatever is in it: no other path, no query, no second request.
"""

from urllib.parse import quote

from slinky.slurm.errors import ConfigurationError

__all__ = ["escaped", "segment"]

# What may stand in a path as it is (RFC 3986), and % as it is part of what is escaped already.
_IN_PATHS = "/%:@!$&'()*+,;=~"


def segment(name: str, what: str) -> str:
    """The name of some `what`, as it may stand in a path.

    >>> segment("../job/3", "node")
    '..%2Fjob%2F3'
    """
    if name in ("", ".", ".."):
        raise ConfigurationError(f"{name!r} is no name of a {what}")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name!r} is no name of a {what}: it holds bytes that are not UTF-8") from None


def escaped(path: str) -> str:
    """A whole path that the caller wrote: what cannot stand in one is escaped, and what would climb out of it is refused."""
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise ConfigurationError(f"the path {path!r} has a part that is '.' or '..'")
    return quote(path, safe=_IN_PATHS)
