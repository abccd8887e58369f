"""The Debian root that Slurm, MariaDB, etcd and containerd come from, made once and cached.

Comes in: the suite and the packages below, and the mirror that the machine's own apt uses. Goes out: a folder with a Debian root, complete
and clean. What must stay true: the host's own packages are left as they are (debootstrap is fetched and unpacked, not installed), no
daemon is started by a package's scripts, and a package version known to be broken is replaced.
"""

import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slinky.sandbox.cache import cache_root, digest, entry, require_room
from slinky.sandbox.errors import BuildError, CircumstanceError
from slinky.sandbox.progress import Progress
from slinky.sandbox.versions import DebianVersions, versions

__all__ = ["PEOPLE", "SERVICES", "bootstrap", "build_root", "find_mirror", "over", "unpack_package"]

PACKAGES = [
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurmrestd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-jwt-plugin",
    "slurm-wlm-mysql-plugin",
    "mariadb-server-core",
    "mariadb-client-core",
    "etcd-server",
    "etcd-client",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "conntrack",
    "ethtool",
    "iproute2",
    "iptables",
    "iputils-ping",
    "kmod",
    "mount",
    "procps",
    "python3",
    "socat",
    "util-linux",
]

# Who can run jobs: a user and a group of the same number each.
PEOPLE = {"alice": 2001, "bob": 2002, "carol": 2003, "dave": 2004}
SERVICES = {"mysql": 2090, "slurmrest": 2091}

STEP_SECONDS = 1800
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"  # the host's, lent to what is fetched inside: a site may have its own


def build_root(progress: Progress) -> Path:
    """The root's folder; made now where it is not in the cache."""
    wanted = versions().debian
    key = digest(*PACKAGES, repr((PEOPLE, SERVICES)), _FINISH, repr(wanted))

    def build(folder: Path) -> None:
        require_room(2, f"the Debian {wanted.suite} root")
        log = cache_root() / "logs" / f"debian-{wanted.suite}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        with progress.step(f"making the Debian {wanted.suite} root (Slurm, MariaDB, etcd, containerd)") as step:
            step.say("looking for the mirror")
            mirror = find_mirror(log)
            step.say("base system")
            bootstrap(folder, wanted, mirror, log)
            step.say(f"{len(PACKAGES)} packages and what they need")
            _inside(folder, _prepare(), log, "the root could not be prepared")
            _inside(folder, _INSTALL, log, f"Debian {wanted.suite}'s packages could not be installed")
            step.say("known faults")
            _mend(folder, wanted, mirror, log)
            _inside(folder, _FINISH, log, "the root could not be finished")
            _require_slurm(folder, wanted)

    return entry(f"roots/{wanted.suite}-{key}", build)


def find_mirror(log: Path) -> str:
    """Where the machine's own apt gets Debian from. A fresh machine's apt knows nothing before its first update."""
    if found := _apt_source():
        return found
    _run(["apt-get", "update"], log, "apt-get update failed: is apt's mirror reachable?")
    if found := _apt_source():
        return found
    raise CircumstanceError("apt has no reachable source for this Debian's main component: add one to /etc/apt/sources.list")


def _apt_source() -> str | None:
    asked = ["apt-get", "indextargets", "--format", "$(CREATED_BY)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CircumstanceError(f"apt-get does not work here: this needs Debian or a relative of it ({error})") from error
    codename = re.search(r"^VERSION_CODENAME=\"?(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    for made_by, suite, component, uri in (line.split("|") for line in told.splitlines()):
        if made_by == "Packages" and component == "main" and codename and suite == codename[1]:
            return uri.rstrip("/")
    return None


def bootstrap(folder: Path, wanted: DebianVersions, mirror: str, log: Path) -> None:
    """The base system alone, as Debian's own slim images have it."""
    tool = entry("toolchain/debootstrap", lambda partial: _fetch_debootstrap(partial, log))
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if not keyring.exists():
        raise CircumstanceError(f"{keyring} is missing: apt-get install debian-archive-keyring")
    command = [
        str(tool / "usr/sbin/debootstrap"),
        "--variant=minbase",
        f"--keyring={keyring}",
        wanted.suite,
        str(folder),
        mirror,
        wanted.script,
    ]
    environment = os.environ | {
        "DEBOOTSTRAP_DIR": str(tool / "usr/share/debootstrap"),
        "PATH": f"{tool / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin",
    }
    _run(command, log, f"Debian {wanted.suite} could not be fetched from the mirror that apt uses: does it carry that suite?", environment)


def _fetch_debootstrap(folder: Path, log: Path) -> None:
    unpack_package("debootstrap", folder, log)
    if not shutil.which("wget"):
        _write_wget(folder / "bin")


def unpack_package(name: str, folder: Path, log: Path) -> None:
    """A package of the machine's own Debian, unpacked and not installed: the host stays as it is."""
    commands = (["apt-get", "download", name], ["apt-get", "update"], ["apt-get", "download", name])
    for command in commands:
        with log.open("ab") as out:
            done = subprocess.run(command, cwd=folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=STEP_SECONDS, check=False)
        if found := list(folder.glob(f"{name}_*.deb")):
            _run(["dpkg-deb", "-x", str(found[0]), str(folder)], log, f"{name} could not be unpacked")
            return
        if done.returncode and command[1] == "update":
            break
    raise BuildError(f"{name} could not be fetched: is apt's mirror reachable?", log)


def _write_wget(folder: Path) -> None:
    """debootstrap fetches with wget, which a bare Debian lacks; apt's own fetcher can do what it asks of it."""
    folder.mkdir()
    script = folder / "wget"
    script.write_text(_WGET)
    script.chmod(0o755)


_WGET = """\
#!/bin/sh
while [ $# -gt 1 ]; do
  case $1 in -O) out=$2; shift ;; esac
  shift
done
exec /usr/lib/apt/apt-helper -o Acquire::Retries=3 download-file "$1" "$out"
"""


def _prepare() -> str:
    users = "\n".join(
        f"groupadd --force --gid {number} {name}; id {name} >/dev/null 2>&1 || useradd --uid {number} --gid {number} --home-dir /var/home/{name} --create-home "
        f"--shell {'/bin/bash' if name in PEOPLE else '/usr/sbin/nologin'} {name}"
        for name, number in (PEOPLE | SERVICES).items()
    )
    return (
        textwrap.dedent("""\
        printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
        chmod +x /usr/sbin/policy-rc.d
        cat > /etc/dpkg/dpkg.cfg.d/slinky <<EOF
        path-exclude=/usr/share/doc/*
        path-exclude=/usr/share/info/*
        path-exclude=/usr/share/locale/*
        path-exclude=/usr/share/man/*
        force-unsafe-io
        EOF
        mkdir -p /var/home
        """)
        + users
    )


_INSTALL = f"apt-get install --yes --no-install-recommends {' '.join(PACKAGES)}"

_FINISH = """\
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/* /usr/share/doc /usr/share/man /usr/share/locale /var/log/*
rm -f /etc/resolv.conf /etc/hostname /etc/machine-id
mkdir -p /etc/slurm /var/log /var/cache
rm -rf /var/run && ln -s /run /var/run
"""


def _mend(folder: Path, wanted: DebianVersions, mirror: str, log: Path) -> None:
    """Take what is broken in the suite from another one."""
    for package, bad in wanted.broken.items():
        for suite in wanted.cures:
            if _installed(folder, package) not in bad:
                break
            script = f"""
                printf 'deb {mirror} {suite} main\\n' > /tmp/cure.list
                options="-o Dir::Etc::sourcelist=/tmp/cure.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=/tmp/cure-lists"
                mkdir -p /tmp/cure-lists/partial /tmp/cure && cd /tmp/cure
                apt-get $options update
                apt-get $options download {package}/{suite}
                dpkg --install --force-downgrade ./{package}_*.deb
                rm -rf /tmp/cure /tmp/cure-lists /tmp/cure.list"""
            with suppress(BuildError):  # the next one may have it; what counts is checked below
                _inside(folder, textwrap.dedent(script), log, f"{package} could not be taken from Debian {suite}")
        if (version := _installed(folder, package)) in bad:
            raise BuildError(
                f"{package} {version} is broken in Debian {wanted.suite}, and none of {', '.join(wanted.cures)} has another", log
            )


def _installed(folder: Path, package: str) -> str:
    command = ["dpkg-query", f"--admindir={folder}/var/lib/dpkg", "--show", "--showformat=${Version}", package]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def _require_slurm(folder: Path, wanted: DebianVersions) -> None:
    found = _installed(folder, "slurmctld")
    numbers = tuple(int(n) for n in re.findall(r"\d+", found)[:2])
    if numbers < tuple(int(n) for n in wanted.slurm.split(".")):
        raise BuildError(f"Debian {wanted.suite} carries Slurm {found}; external jobs need {wanted.slurm} or newer")


def _inside(folder: Path, script: str, log: Path, failure: str) -> None:
    """Run a script in the root, with mounts and processes that end with it."""
    _lend_names(folder)
    _chroot(folder, script, log, failure)


def over(root: Path, folder: Path, script: str, log: Path, failure: str, between: Sequence[Path] = ()) -> None:
    """The same over a root that stays as it is: what the script changes is afterwards in `folder/upper`. `between`: what was laid over the root before, the highest first."""
    upper, work, merged = (folder / name for name in ("upper", "work", "merged"))
    for place in (upper / "etc", work, merged):
        place.mkdir(parents=True, exist_ok=True)
    _lend_names(upper)
    lower = ":".join(str(place.resolve()) for place in (*between, root))
    options = f"lowerdir={lower},upperdir={upper},workdir={work},redirect_dir=off,metacopy=off"
    _chroot(merged, script, log, failure, f"mount -t overlay overlay -o {options} {merged} && ")


def _lend_names(folder: Path) -> None:
    for name in ("resolv.conf", "hosts"):
        if Path("/etc", name).exists():
            shutil.copyfile(Path("/etc", name), folder / "etc" / name)


def _chroot(folder: Path, script: str, log: Path, failure: str, before: str = "") -> None:
    lend = f'{{ [ ! -e "$1{AUTHORITIES}" ] || mount --bind {AUTHORITIES} "$1{AUTHORITIES}"; }}'
    enter = before + f'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && {lend} && exec chroot "$1" /bin/sh -euc "$2"'
    namespaces = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    lent = {
        k: v for k, v in os.environ.items() if k.lower() in ("http_proxy", "https_proxy", "no_proxy", "pip_index_url", "pip_trusted_host")
    }
    if Path(AUTHORITIES).exists():
        lent["PIP_CERT"] = AUTHORITIES
    _run([*namespaces, "sh", "-c", enter, "sh", str(folder), script], log, failure, environment | lent)


def _run(command: list[str], log: Path, failure: str, environment: dict[str, str] | None = None) -> None:
    with log.open("ab") as out:
        try:
            done = subprocess.run(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment, timeout=STEP_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"{failure} (no end within {STEP_SECONDS} s)", log) from None
    if done.returncode:
        raise BuildError(failure, log)
