"""Images of clusters in pods: one layer over another, written once, and removals told as OCI tells them."""

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from slinky.sandbox import recipes
from slinky.sandbox.archives import Packed, add, write_archive
from slinky.sandbox.clusters import VOLUMES, database, local_volumes
from slinky.sandbox.errors import UsageError
from slinky.sandbox.images import CLUSTER_FILE, OWN_FILE, archives
from slinky.sandbox.shape import Shape


def layer(path: Path, **files: str) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, text in files.items():
            add(tar, name, text.encode())
    return path


def test_a_layer_that_images_share_is_in_the_archive_once(tmp_path: Path) -> None:
    below, over = layer(tmp_path / "below.tar", a="below"), layer(tmp_path / "over.tar", b="over")
    images = [
        Packed("x/one:1", ["/one"], [below]),
        Packed("x/two:1", ["/two"], [below, over]),
        Packed("x/two:2", ["/two"], [below, over], {"tag": "2"}),
    ]
    write_archive(tmp_path / "all.tar", images)
    with tarfile.open(tmp_path / "all.tar") as tar:
        names = tar.getnames()
        contents = {member.name: (tar.extractfile(member) or pytest.fail("empty")).read() for member in tar}
    assert len(names) == len(set(names))
    described = json.loads(contents["index.json"])["manifests"]
    manifests = [json.loads(contents[f"blobs/sha256/{one['digest'].removeprefix('sha256:')}"]) for one in described]
    assert [len(manifest["layers"]) for manifest in manifests] == [1, 2, 2]
    assert len({manifest["config"]["digest"] for manifest in manifests}) == 3  # the second tag is another image
    assert manifests[1]["layers"][0]["digest"] == "sha256:" + hashlib.sha256(below.read_bytes()).hexdigest()


def test_what_was_removed_of_the_root_is_told_by_its_name(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root makes the files by which an overlay says that something is gone")
    upper = tmp_path / "upper"
    (upper / "etc").mkdir(parents=True)
    (upper / "etc/kept").write_text("kept")
    os.mknod(upper / "etc/gone", 0o020000, 0)
    (upper / "var/lib/dpkg").mkdir(parents=True)
    (upper / "var/lib/dpkg/status").write_text("apt's")
    with tarfile.open(tmp_path / "layer.tar", "w") as archive:
        for path in recipes._found(upper):
            recipes._put(archive, path, str(path.relative_to(upper)))
    with tarfile.open(tmp_path / "layer.tar") as archive:
        members = {member.name: member for member in archive}
    assert {"etc", "etc/kept", "etc/.wh.gone", "var", "var/lib"} == set(members)
    assert members["etc/kept"].uname == ""


def test_a_sandbox_loads_slurm_once_with_clusters_or_without() -> None:
    assert "sandbox-slurm-1.tar" in archives(operator=False)
    assert CLUSTER_FILE not in archives(operator=False)
    assert archives(operator=True) == ["sandbox-pause-1.tar", "sandbox-busybox-1.tar", CLUSTER_FILE, OWN_FILE]


def test_clusters_in_pods_need_real_nodes() -> None:
    with pytest.raises(UsageError, match="--real-nodes"):
        Shape(operator=True).checked()
    assert Shape(operator=True, real_nodes=2).checked().operator


def test_volumes_stand_on_their_node(tmp_path: Path) -> None:
    found = list(local_volumes("node-1"))
    assert len({volume["metadata"]["name"] for volume in found}) == VOLUMES
    assert all(
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["node-1"]
        for volume in found
    )
    assert "cluster" in database(tmp_path)
    assert (tmp_path / "mariadb-password").stat().st_mode & 0o777 == 0o600
