"""Container images without a container engine: OCI archives made from the Debian root, one layer each, kept in the cache.

`sandbox/pause:1` is what containerd holds a pod's namespaces with, `sandbox/busybox:1` serves examples, `sandbox/slurm:1` carries every Slurm
daemon and command. They are loaded into each real node's containerd; nothing is ever pulled.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slinky.sandbox.cache import digest, entry
from slinky.sandbox.errors import BuildError
from slinky.sandbox.progress import Progress

__all__ = ["IMAGES", "Image", "build_images"]

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
BUILD_SECONDS = 600

_WAIT = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"


@dataclass(frozen=True)
class Image:
    """`paths` of the root (everything where empty, less `without`)."""

    name: str
    entrypoint: Sequence[str]
    paths: Sequence[str] = ()
    without: Sequence[str] = ()
    links: bool = False

    @property
    def file(self) -> str:
        return self.name.replace("/", "-").replace(":", "-") + ".tar"


BUSYBOX = "usr/bin/busybox"
SERVERS = (
    "usr/bin/containerd*",
    "usr/bin/ctr",
    "usr/bin/etcd*",
    "usr/sbin/mariadb*",
    "usr/sbin/runc",
    "usr/lib/cni",
    "usr/share/mariadb",
    "var/lib/dpkg",
)

IMAGES = (
    Image("sandbox/pause:1", ("/bin/sh", "-c", _WAIT), (BUSYBOX,), links=True),
    Image("sandbox/busybox:1", ("/bin/sh",), (BUSYBOX,), links=True),
    Image("sandbox/slurm:1", ("/bin/bash",), without=SERVERS),
)


def build_images(root: Path, progress: Progress) -> Path:
    """A folder with one archive an image."""
    key = digest(root.name, *(repr(image) for image in IMAGES), Path(__file__).read_bytes())

    def build(folder: Path) -> None:
        with progress.step("making the container images") as step:
            for image in IMAGES:
                step.say(image.name)
                _archive(image, root, folder)

    return entry(f"images/{key}", build)


def _archive(image: Image, root: Path, folder: Path) -> None:
    layer = folder / "layer.tar"
    if image.links:
        _write_busybox_layer(root, layer)
    else:
        _write_root_layer(root, layer, image)
    blob = _blob_of(layer)
    architecture = ARCHITECTURES.get(_machine(), _machine())
    settings = {"Entrypoint": list(image.entrypoint), "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}
    config = _json(
        {"architecture": architecture, "os": "linux", "config": settings, "rootfs": {"type": "layers", "diff_ids": [blob["digest"]]}}
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": _digest(config), "size": len(config)},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", **blob}],
        }
    )
    described: dict[str, Any] = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": _digest(manifest),
        "size": len(manifest),
    }
    described["annotations"] = {
        "io.containerd.image.name": f"docker.io/{image.name}",
        "org.opencontainers.image.ref.name": image.name.split(":")[1],
    }
    with tarfile.open(folder / image.file, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": [described]}))
        for content in (config, manifest):
            _add(archive, f"blobs/sha256/{_digest(content).removeprefix('sha256:')}", content)
        archive.add(layer, f"blobs/sha256/{str(blob['digest']).removeprefix('sha256:')}")
    layer.unlink()


def _write_root_layer(root: Path, layer: Path, image: Image) -> None:
    command = ["tar", "--create", "--file", str(layer), "--directory", str(root), "--numeric-owner", "--one-file-system"]
    command += [f"--exclude=./{path}" for path in (*image.without, "dev/*", "proc/*", "sys/*", "run/*", "tmp/*", "boot")]
    try:
        subprocess.run([*command, "."], check=True, capture_output=True, text=True, timeout=BUILD_SECONDS)
    except subprocess.SubprocessError as error:
        raise BuildError(f"image {image.name}: tar of {root} failed: {getattr(error, 'stderr', '') or error}") from error


def _write_busybox_layer(root: Path, layer: Path) -> None:
    busybox = root / BUSYBOX
    applets = subprocess.run([str(busybox), "--list"], check=True, capture_output=True, text=True, timeout=60).stdout.split()
    with tarfile.open(layer, "w") as archive:
        for name in ("bin", "etc", "tmp", "root", "proc", "sys", "dev"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        archive.add(busybox, "bin/busybox")
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
        _add(archive, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
        _add(archive, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o644
    archive.addfile(member, io.BytesIO(content))


def _blob_of(path: Path) -> dict[str, str | int]:
    with path.open("rb") as file:
        return {"digest": "sha256:" + hashlib.file_digest(file, "sha256").hexdigest(), "size": path.stat().st_size}


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _machine() -> str:
    return os.uname().machine
