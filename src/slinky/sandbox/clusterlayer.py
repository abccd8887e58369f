"""What the images of the operator's clusters have over `sandbox/slurm:1`: sshd, SSSD, sackd, MPICH, slapd, the user slurm as 401, and an entry point a daemon.

Comes in: the Debian root, as it is in the cache. Goes out: one layer, a tar file. It is what an overlay's upper folder holds after Debian's packages were installed over the root, so the root itself stays as it
is and costs nobody else anything. What must stay true: what was removed of the root stands in the layer as OCI says it (`.wh.NAME`); nothing of apt, and nothing large that no daemon opens, is in it.
"""

import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from slinky.sandbox.archives import add
from slinky.sandbox.cache import cache_root, digest
from slinky.sandbox.debian import over
from slinky.sandbox.versions import versions

__all__ = ["ENTRY_POINTS", "PLACE", "layer_key", "write_cluster_layer"]

FILES = Path(__file__).parent / "files" / "images"
ENTRY_POINTS = ("slurmctld", "slurmd", "slurmdbd", "slurmrestd", "login", "slapd")
PLACE = "usr/libexec/slinky"
SLURM_ID = 401  # as in the images that others publish

PACKAGES = [
    "ldap-utils",
    "libmpich12",
    "libnss-sss",
    "libpam-slurm-adopt",
    "libpam-sss",
    "openssh-client",
    "openssh-server",
    "sackd",
    "slapd",
    "sssd-ldap",
    "tini",
]
# Unpacked, not installed, to compile one small program with: a compiler of 300 KB does, and nothing of it stays.
COMPILER = ["tcc", "libc6-dev", "libmpich-dev", "linux-libc-dev"]

# A mirror may be a snapshot, whose Release file has run out. What the suite lacks for a while is taken from another, which is asked last.
INSTALL = f"""\
apt="apt-get -o Acquire::Check-Valid-Until=false"
sed 's/ @SUITE@ / @BORROWED@ /' /etc/apt/sources.list > /etc/apt/sources.list.d/borrowed.list
printf 'Package: *\\nPin: release n=@BORROWED@\\nPin-Priority: 100\\n' > /etc/apt/preferences.d/borrowed
$apt update
$apt install --yes --no-install-recommends {" ".join(PACKAGES)}
mkdir /tmp/compiler
cd /tmp/compiler
$apt download {" ".join(COMPILER)}
for package in *.deb; do dpkg-deb -x "$package" .; done
"""

COMPILE = f"""\
cd /tmp/compiler/usr
folder=$(basename "$(dirname lib/*/crt1.o)")
here=lib/$folder there=/usr/lib/$folder
bin/tcc -B$here/tcc -nostdlib -nostdinc -I$here/tcc/include -Iinclude -Iinclude/$folder -I$here/mpich/include -o /usr/bin/mpi-ranks \\
  $here/crt1.o $here/crti.o /{PLACE}/mpi-ranks.c $here/tcc/libtcc1.a $there/libmpich.so.12 $there/libc.so.6 $here/crtn.o
"""

# sshd: one that wants it mounts an sshd_config, and host keys. In a container nobody may set a login's audit number.
FINISH = f"""\
sed -i -E 's/^slurm:x:[0-9]+:[0-9]+:/slurm:x:{SLURM_ID}:{SLURM_ID}:/' /etc/passwd
sed -i -E 's/^slurm:x:[0-9]+:/slurm:x:{SLURM_ID}:/' /etc/group
sed -i -E 's/^(session +)required( +pam_loginuid)/\\1optional\\2/' /etc/pam.d/*
pam-auth-update --enable mkhomedir
rm -rf /etc/ssh/sshd_config /etc/ssh/ssh_host_* /etc/ldap/slapd.d /var/lib/ldap/*
for folder in /var/spool/slurmctld /var/spool/slurmd /var/log/slurm; do install -d -o {SLURM_ID} -g {SLURM_ID} $folder; done
rm -rf /run/slurm
for folder in /run/slurmctld /run/slurmdbd; do install -d -o {SLURM_ID} -g {SLURM_ID} $folder; done
rm -rf /etc/apt/sources.list.d/borrowed.list /etc/apt/preferences.d/borrowed /tmp/* /var/cache/* /var/lib/apt/lists/* /var/log/*
rm -f /etc/resolv.conf /etc/hosts
cd /usr/lib
rm -rf llvm-* */libLLVM* */libamd_comgr* */libamdhip64* */libhsa* */libz3* */ucx/*rocm* */ucx/*_ze* */libze_[tv]* */libmpi_abi*
rm -rf */perl */libperl* /usr/share/perl
"""

LEFT_OUT = ("var/lib/dpkg", "var/cache", "var/lib/apt", "dev", "proc", "sys", "tmp")


def layer_key() -> str:
    return digest(
        repr(versions().images),
        INSTALL,
        COMPILE,
        FINISH,
        Path(__file__).read_bytes(),
        *(file.read_bytes() for file in sorted(FILES.iterdir())),
    )


def write_cluster_layer(root: Path, layer: Path) -> None:
    log = cache_root() / "logs" / "cluster-images.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    install = INSTALL.replace("@SUITE@", versions().debian.suite).replace("@BORROWED@", versions().images.borrowed)
    with tempfile.TemporaryDirectory(dir=layer.parent, prefix="over-") as name:
        folder = Path(name)
        upper = folder / "upper"
        place = upper / PLACE
        place.mkdir(parents=True)
        for file in FILES.iterdir():
            shutil.copyfile(file, place / file.name)
            (place / file.name).chmod(0o755)
        over(root, folder, install, log, "the packages of the clusters' images could not be installed")
        over(root, folder, COMPILE, log, "the MPI program could not be compiled")
        over(root, folder, FINISH, log, "the clusters' images could not be finished")
        with tarfile.open(layer, "w") as archive:
            for path in _found(upper):
                _put(archive, path, str(path.relative_to(upper)))


def _found(upper: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(upper):
        here = Path(folder)
        names[:] = sorted(name for name in names if str((here / name).relative_to(upper)) not in LEFT_OUT)
        yield from (here / name for name in sorted([*names, *files]) if str((here / name).relative_to(upper)) not in LEFT_OUT)


def _put(archive: tarfile.TarFile, path: Path, name: str) -> None:
    about = path.lstat()
    if stat.S_ISCHR(about.st_mode) and about.st_rdev == 0:  # an overlay's sign that this is no more
        add(archive, str(Path(name).with_name(f".wh.{path.name}")), b"")
        return
    member = archive.gettarinfo(path, name)
    member.uname = member.gname = ""  # names are the host's, numbers the image's
    if member.isreg():
        with path.open("rb") as file:
            archive.addfile(member, file)
    else:
        archive.addfile(member)
    if stat.S_ISDIR(about.st_mode) and _is_opaque(path):
        add(archive, f"{name}/.wh..wh..opq", b"")


def _is_opaque(folder: Path) -> bool:
    try:
        return os.getxattr(folder, "trusted.overlay.opaque") == b"y"
    except OSError:
        return False
