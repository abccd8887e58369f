"""Container images without a container engine: OCI archives made from the Debian root, kept in the cache.

`sandbox/pause:1` is what containerd holds a pod's namespaces with, `sandbox/busybox:1` serves examples, `sandbox/slurm:1` carries every Slurm daemon and command. Where the operator's clusters are asked for,
one more archive has an image a daemon, all of two layers: that of `sandbox/slurm:1`, and what clusterlayer.py lays over it. They are loaded into each real node's containerd; nothing is ever pulled.
"""

import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slinky.sandbox.archives import Packed, add, write_archive
from slinky.sandbox.cache import digest, entry
from slinky.sandbox.clusterlayer import ENTRY_POINTS, PLACE, layer_key, write_cluster_layer
from slinky.sandbox.errors import BuildError
from slinky.sandbox.progress import Progress

__all__ = ["IMAGES", "Image", "archives", "build_images"]

BUILD_SECONDS = 600
CLUSTER_FILE = "sandbox-cluster.tar"
TAGS = ("1", "2")  # the same under two names, to try an image's change

_WAIT = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"


@dataclass(frozen=True)
class Image:
    """Everything of the root, less `without`; or busybox and its links."""

    name: str
    entrypoint: Sequence[str]
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

SLURM = Image("sandbox/slurm:1", ("/bin/bash",), without=SERVERS)
IMAGES = (
    Image("sandbox/pause:1", ("/bin/sh", "-c", _WAIT), links=True),
    Image("sandbox/busybox:1", ("/bin/sh",), links=True),
    SLURM,
)


def archives(operator: bool) -> list[str]:
    """The files to load. The clusters' archive has `sandbox/slurm:1` in it."""
    return [image.file for image in IMAGES if not (operator and image is SLURM)] + [CLUSTER_FILE] * operator


def build_images(root: Path, operator: bool, progress: Progress) -> Path:
    """A folder with the archives that are to be loaded."""
    key = digest(root.name, repr(IMAGES), *(Path(__file__).with_name(name).read_bytes() for name in ("images.py", "archives.py")))
    if operator:
        key = f"{key}-{digest(layer_key(), *TAGS)}"

    def build(folder: Path) -> None:
        with progress.step("making the container images") as step:
            layer = folder / "layer.tar"
            for image in IMAGES:
                if image.file in archives(operator):
                    step.say(image.name)
                    _write_layer(image, root, layer)
                    write_archive(folder / image.file, [Packed(image.name, image.entrypoint, [layer])])
            if operator:
                step.say("the daemons' packages")
                over = folder / "over.tar"
                write_cluster_layer(root, over)
                step.say("the daemons' images")
                _write_layer(SLURM, root, layer)
                write_archive(folder / CLUSTER_FILE, _daemons(layer, over))
                over.unlink()
            layer.unlink()

    return entry(f"images/{key}", build)


def _daemons(below: Path, over: Path) -> list[Packed]:
    found = [Packed(SLURM.name, SLURM.entrypoint, [below])]
    for daemon in ENTRY_POINTS:
        for tag in TAGS:
            words = ("/usr/bin/tini", "--", f"/{PLACE}/{daemon}")
            found.append(Packed(f"sandbox/{daemon}:{tag}", words, [below, over], {"tag": tag}))
    return found


def _write_layer(image: Image, root: Path, layer: Path) -> None:
    if image.links:
        _write_busybox_layer(root, layer)
    else:
        _write_root_layer(root, layer, image)


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
        add(archive, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
        add(archive, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")
