"""OCI archives as containerd imports them: layers, a config and a manifest for each image, an index over all.

Comes in: names, entry points, and layers as tar files that are there. Goes out: one archive, in which a layer that several images share is written once. No engine is needed.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Packed", "add", "write_archive"]

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True)
class Packed:
    """An image: `NAME:TAG`, what it runs, and its layers, the lowest first."""

    name: str
    entrypoint: Sequence[str]
    layers: Sequence[Path]
    labels: dict[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


def write_archive(path: Path, images: Sequence[Packed], there: Collection[Path] = ()) -> None:
    """`there`: layers that are left out, for whoever imports it has them already."""
    blobs = {layer: _blob_of(layer) for image in images for layer in image.layers}
    described = []
    with tarfile.open(path, "w") as archive:
        add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        for image in images:
            config = _config(image, blobs)
            manifest = _manifest(image, config, blobs)
            described.append(_described(image, manifest))
            for content in (config, manifest):
                add(archive, _place(_digest(content)), content)
        for layer, blob in blobs.items():
            if layer in there:
                continue
            archive.add(layer, _place(str(blob["digest"])))
        add(archive, "index.json", _json({"schemaVersion": 2, "manifests": described}))


def _config(image: Packed, blobs: dict[Path, dict[str, str | int]]) -> bytes:
    machine = os.uname().machine
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **image.environment}
    settings: dict[str, Any] = {"Entrypoint": list(image.entrypoint), "Env": [f"{name}={value}" for name, value in environment.items()]}
    if image.user:
        settings["User"] = image.user
    if image.labels:
        settings["Labels"] = image.labels
    layers = [blobs[layer]["digest"] for layer in image.layers]
    return _json(
        {"architecture": ARCHITECTURES.get(machine, machine), "os": "linux", "config": settings}
        | {"rootfs": {"type": "layers", "diff_ids": layers}}
    )


def _manifest(image: Packed, config: bytes, blobs: dict[Path, dict[str, str | int]]) -> bytes:
    layers = [{"mediaType": "application/vnd.oci.image.layer.v1.tar", **blobs[layer]} for layer in image.layers]
    about = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": _digest(config), "size": len(config)}
    return _json({"schemaVersion": 2, "mediaType": MANIFEST, "config": about, "layers": layers})


def _described(image: Packed, manifest: bytes) -> dict[str, Any]:
    names = {"io.containerd.image.name": f"docker.io/{image.name}", "org.opencontainers.image.ref.name": image.name.split(":")[1]}
    return {"mediaType": MANIFEST, "digest": _digest(manifest), "size": len(manifest), "annotations": names}


def add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def _place(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _blob_of(path: Path) -> dict[str, str | int]:
    with path.open("rb") as file:
        return {"digest": "sha256:" + hashlib.file_digest(file, "sha256").hexdigest(), "size": path.stat().st_size}


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
