"""The versions the sandbox is made of, read from `versions.toml` beside this file: the only place where one stands."""

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from slinky.sandbox.errors import UsageError

__all__ = ["GOMODS", "DebianVersions", "Program", "Versions", "kubernetes_version", "versions"]

HERE = Path(__file__).parent
GOMODS = HERE / "gomods"


class GoVersions(msgspec.Struct, frozen=True):
    minimum: str
    pypi: str


class DebianVersions(msgspec.Struct, frozen=True):
    suite: str
    script: str
    slurm: str
    broken: dict[str, list[str]]
    cures: list[str]


class ImageVersions(msgspec.Struct, frozen=True):
    borrowed: str


class KubernetesVersions(msgspec.Struct, frozen=True):
    default: str
    releases: dict[str, str]


class Program(msgspec.Struct, frozen=True):
    module: str
    version: str
    package: str = ""


class Versions(msgspec.Struct, frozen=True):
    go: GoVersions
    debian: DebianVersions
    images: ImageVersions
    kubernetes: KubernetesVersions
    programs: dict[str, Program]
    manifests: dict[str, Program]


@cache
def versions() -> Versions:
    return msgspec.convert(tomllib.loads((HERE / "versions.toml").read_text()), Versions)


def kubernetes_version(release: str) -> str:
    """`1.36` → `1.36.4`, as pinned."""
    try:
        return versions().kubernetes.releases[release]
    except KeyError:
        offered = ", ".join(versions().kubernetes.releases)
        raise UsageError(f"Kubernetes {release} is not pinned; there is {offered} (sandbox/versions.toml)") from None
