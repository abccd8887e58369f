"""Container images without a container engine: OCI archives made from the Debian root, kept in the cache.

`sandbox/pause:1` is what containerd holds a pod's namespaces with, `sandbox/busybox:1` serves examples, `sandbox/slurm:1` carries every Slurm daemon and command. Where the operator's clusters are asked for, there are two more archives, built from the recipes in images/: one has an
image a daemon (`slinky/slurmd:26.05` as the charts name it, and `sandbox/slurmd:1` and `:2` with what is for trying over it), the other `slinky/slinky:VERSION`, our own processes. They are loaded into each real node's containerd; nothing is ever pulled.
"""

import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slinky import __version__
from slinky.sandbox.archives import Packed, add, write_archive
from slinky.sandbox.cache import digest, entry
from slinky.sandbox.errors import BuildError
from slinky.sandbox.progress import Progress, Step
from slinky.sandbox.recipes import Kitchen

__all__ = ["DAEMONS", "IMAGES", "Image", "archives", "build_images"]

BUILD_SECONDS = 600
CLUSTER_FILE, OWN_FILE = "sandbox-cluster.tar", "slinky.tar"
DAEMONS = ("slurmctld", "slurmd", "slurmdbd", "slurmrestd", "login")
SLURM_TAG = "26.05"  # by which the charts name them
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
    """The files to load, in this order. The clusters' archive has `sandbox/slurm:1` in it, and layers that the next one leaves out."""
    return [image.file for image in IMAGES if not (operator and image is SLURM)] + [CLUSTER_FILE, OWN_FILE] * operator


def build_images(root: Path, operator: bool, progress: Progress) -> Path:
    """A folder with the archives that are to be loaded."""
    key = digest(root.name, repr(IMAGES), *(Path(__file__).with_name(name).read_bytes() for name in ("images.py", "archives.py")))
    kitchen = Kitchen(root) if operator else None
    name = f"images/{key}-{digest(kitchen.key('slapd'), kitchen.key('slurm'), kitchen.key('slinky'))}" if kitchen else f"images/{key}"

    def build(folder: Path) -> None:
        with progress.step("making the container images") as step:
            if kitchen:
                below = entry(
                    f"images/{key}-cluster-{digest(kitchen.key('slapd'), kitchen.key('slurm'))}",
                    lambda other: _write_cluster(kitchen, root, other, step),
                )
                for file in below.iterdir():
                    (folder / file.name).hardlink_to(file)
                step.say("our own")
                _write_own(kitchen, folder / OWN_FILE, below / LAYER, step)
                return
            _write_plain(root, folder, step)

    return entry(name, build)


LAYER = "root.tar"  # the root, as the lowest layer of all


def _write_plain(root: Path, folder: Path, step: Step) -> None:
    layer = folder / "layer.tar"
    for image in IMAGES:
        step.say(image.name)
        _write_layer(image, root, layer)
        write_archive(folder / image.file, [Packed(image.name, image.entrypoint, [layer])])
    layer.unlink()


def _write_cluster(kitchen: Kitchen, root: Path, folder: Path, step: Step) -> None:
    _write_layer(SLURM, root, folder / LAYER)
    layer = folder / "layer.tar"
    for image in IMAGES:
        if image is not SLURM:
            _write_layer(image, root, layer)
            write_archive(folder / image.file, [Packed(image.name, image.entrypoint, [layer])])
    layer.unlink()
    tried = _layers(kitchen, folder / LAYER, "trial", step)
    found = [Packed(SLURM.name, SLURM.entrypoint, [folder / LAYER])]
    for daemon in (*DAEMONS, "slapd"):
        words = kitchen.stages[daemon].entrypoint
        found += [Packed(f"sandbox/{daemon}:{tag}", words, tried, {"tag": tag}) for tag in TAGS]
        if daemon in DAEMONS:
            found.append(Packed(f"slinky/{daemon}:{SLURM_TAG}", words, _layers(kitchen, folder / LAYER, daemon, step)))
    step.say("the daemons' images")
    write_archive(folder / CLUSTER_FILE, found)


def _write_own(kitchen: Kitchen, archive: Path, lowest: Path, step: Step) -> None:
    """Without what the clusters' archive has already: our source changes often, and the rest is large."""
    stage = kitchen.stages["slinky"]
    layers = _layers(kitchen, lowest, "slinky", step)
    there = _layers(kitchen, lowest, "trial", step)
    packed = Packed(f"slinky/slinky:{__version__}", stage.entrypoint, layers, environment=stage.environment, user=stage.user)
    write_archive(archive, [packed], there)


def _layers(kitchen: Kitchen, lowest: Path, stage: str, step: Step) -> list[Path]:
    return [lowest, *(layer.archive for layer in kitchen.layers(stage, step))]


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
