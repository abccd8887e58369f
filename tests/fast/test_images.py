"""Images are OCI archives whose every blob is named by its digest."""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from slinky.sandbox.images import IMAGES, Image, build_images
from slinky.sandbox.progress import Progress


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with something in it, and a `busybox` that can list its applets."""
    monkeypatch.setenv("SLINKY_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "root"
    for folder in ("usr/bin", "etc", "proc", "dev", "var/lib"):
        (root / folder).mkdir(parents=True)
    (root / "usr/bin/etcd").write_text("big")
    (root / "usr/bin/squeue").write_text("squeue")
    busybox = root / "usr/bin/busybox"
    busybox.write_text("#!/bin/sh\necho busybox sh httpd\n")
    busybox.chmod(0o755)
    return root


def blobs_of(archive: Path) -> tuple[dict[str, bytes], dict[str, object]]:
    with tarfile.open(archive) as tar:
        contents = {member.name: (tar.extractfile(member) or pytest.fail("empty")).read() for member in tar if member.isfile()}
    return {name.removeprefix("blobs/sha256/"): data for name, data in contents.items() if name.startswith("blobs/")}, json.loads(
        contents["index.json"]
    )


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_an_archive_is_whole(root: Path, image: Image) -> None:
    with Progress() as progress:
        folder = build_images(root, False, progress)
    blobs, index = blobs_of(folder / image.file)
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in blobs.items())
    described = index["manifests"][0]  # type: ignore[index]
    assert described["annotations"]["io.containerd.image.name"] == f"docker.io/{image.name}"
    manifest = json.loads(blobs[described["digest"].removeprefix("sha256:")])
    config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert config["config"]["Entrypoint"] == list(image.entrypoint)


def test_the_slurm_image_carries_slurm_and_not_the_other_servers(root: Path, tmp_path: Path) -> None:
    with Progress() as progress:
        folder = build_images(root, False, progress)
    blobs, _ = blobs_of(folder / "sandbox-slurm-1.tar")
    layer = tmp_path / "layer.tar"
    layer.write_bytes(max(blobs.values(), key=len))
    with tarfile.open(layer) as tar:
        names = tar.getnames()
    assert "./usr/bin/squeue" in names
    assert "./usr/bin/etcd" not in names
    shutil.rmtree(folder)
