"""A real OCI builder: Debian's buildah, over a plain Debian that nothing of the sandbox is in.

Comes in: the checkout's images/. Goes out: every image of it, in the builder's own store, and what a command in one of them says. What must stay true: the host's packages stay as they are, nothing is pulled (the base
image is the plain Debian under the name that the recipe has for it), and nothing is left of it but the cached plain Debian and builder.
"""

import json
import resource
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slinky.sandbox.cache import cache_root, digest, entry, require_room
from slinky.sandbox.debian import bootstrap, find_mirror, over
from slinky.sandbox.progress import Progress
from slinky.sandbox.versions import versions

__all__ = ["Builder"]

BASE = "docker.io/library/debian:forky-slim"
INSTALL = """\
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
apt-get -o Acquire::Check-Valid-Until=false update
apt-get install --yes --no-install-recommends buildah ca-certificates netavark
rm -rf /var/cache/apt/* /var/lib/apt/lists/*
"""
# No engine's daemon, no overlay over an overlay, no cgroups: what any root may do.
BUILDAH = "buildah --storage-driver vfs"
IMPORT = f"""\
mkdir -p /etc/containers && echo '{{"default": [{{"type": "insecureAcceptAnything"}}]}}' > /etc/containers/policy.json
plain=$({BUILDAH} from scratch)
{BUILDAH} add --quiet "$plain" /plain.tar /
{BUILDAH} config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$plain"
{BUILDAH} commit --quiet --rm "$plain" {BASE}
rm /plain.tar
printf '[global]\\ncert = /etc/site-authorities.crt\\n' > /pip.conf
"""
# A site may have an authority of its own between it and PyPI: what trusts it is lent to the build, and is not in the image.
LENT = "--volume /pip.conf:/etc/pip.conf:ro --volume /etc/ssl/certs/ca-certificates.crt:/etc/site-authorities.crt:ro"
LIMITS = {"nproc": resource.RLIMIT_NPROC, "nofile": resource.RLIMIT_NOFILE}


def _limits() -> str:
    """As they are: it would raise them, which not every root may."""
    most = {name: resource.getrlimit(limit)[1] for name, limit in LIMITS.items()}
    return " ".join(f"--ulimit {name}={limit}:{limit}" for name, limit in most.items())


class Builder:
    """`folder`: where its store is, some GB of it."""

    def __init__(self, folder: Path, checkout: Path, progress: Progress) -> None:
        require_room(12, "building the images with buildah")
        self._folder, self._checkout = folder, checkout
        self.log = cache_root() / "logs" / "buildah.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")
        self._plain = self._plain_debian(progress)
        self._tool = entry(f"toolchain/buildah-{self._plain.name}-{digest(INSTALL)}", lambda made: self._fetch(made, progress))

    def _plain_debian(self, progress: Progress) -> Path:
        wanted = versions().debian

        def make(made: Path) -> None:
            with progress.step(f"making a plain Debian {wanted.suite}"):
                bootstrap(made, wanted, find_mirror(self.log), self.log)

        return entry(f"roots/plain-{wanted.suite}-{digest(repr(wanted))}", make)

    def _fetch(self, made: Path, progress: Progress) -> None:
        with progress.step("fetching Debian's buildah"):
            over(self._plain, made, INSTALL, self.log, "buildah could not be installed")

    def _run(self, script: str) -> None:
        over(self._plain, self._folder, script, self.log, f"the builder failed: {script}", [self._tool / "upper"])

    def start(self) -> None:
        """The recipe's context, and its base."""
        there = self._folder / "upper" / "context"
        there.mkdir(parents=True)
        for part in ("images", "src/slinky"):
            shutil.copytree(self._checkout / part, there / part, ignore=shutil.ignore_patterns("__pycache__"))
        command = ["tar", "--create", "--file", str(self._folder / "upper/plain.tar"), "--directory", str(self._plain), "--numeric-owner"]
        left_out = [f"--exclude=./{path}" for path in ("dev/*", "proc/*", "sys/*", "etc/resolv.conf", "var/cache/apt/*", "etc/hostname")]
        subprocess.run([*command, *left_out, "."], check=True, timeout=600)
        self._run(IMPORT)

    def build(self, stage: str) -> None:
        """As the recipe's head says, with nothing pulled."""
        said = f"{_limits()} {LENT} --file images/Containerfile --target {stage} --tag slinky/{stage}:built"
        self._run(f"cd /context && {BUILDAH} build --isolation chroot --layers --pull=never {said} .")

    def about(self, stage: str) -> dict[str, Any]:
        """The image's OCI configuration."""
        self._run(f"{BUILDAH} inspect --type image slinky/{stage}:built > /about.json")
        found: dict[str, Any] = json.loads((self._folder / "upper/about.json").read_text())
        return found["OCIv1"]["config"]  # type: ignore[no-any-return]

    def says(self, stage: str, command: Sequence[str], user: str = "") -> str:
        """What a command in the image says, on both streams."""
        run = f'{BUILDAH} run --isolation chroot {f"--user {user} " if user else ""}"$made" -- {shlex.join(command)}'
        self._run(f"made=$({BUILDAH} from {_limits()} --pull=never slinky/{stage}:built); {run} > /said 2>&1; {BUILDAH} rm $made")
        return (self._folder / "upper/said").read_text()
