"""Images from Containerfiles without a builder: their instructions, carried out over the Debian root that the sandbox has anyway.

Comes in: images/Containerfile and the sandbox's own over it, the checkout, the root. Goes out: of each stage its layers, as tar files in the cache, and what an image of it runs. What must stay true: a stage is built again when anything that it is made of has changed, and only then; the
root and the layers below stay as they are; an instruction that is not understood here is an error, and never left out.
"""

import json
import os
import re
import shlex
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slinky.sandbox.archives import add
from slinky.sandbox.cache import cache_root, digest, entry
from slinky.sandbox.debian import over
from slinky.sandbox.errors import BuildError, UsageError
from slinky.sandbox.progress import Step

__all__ = ["Kitchen", "Layer", "Stage", "read_recipes"]

CHECKOUT = Path(__file__).parents[3]
RECIPES = ("images/Containerfile", "src/slinky/sandbox/files/images/Containerfile")
LEFT_OUT = ("var/lib/dpkg", "var/cache", "var/lib/apt", "dev", "proc", "sys", "tmp", "etc/resolv.conf", "etc/hosts")
WAY = "1"  # of making layers: another one makes all of them anew
IGNORED = ("__pycache__", "*.pyc")


@dataclass(frozen=True)
class Stage:
    """`FROM parent AS name`, and what follows. The parent of the lowest is no stage: it is the Debian root here."""

    name: str
    parent: str
    deeds: Sequence[tuple[str, str]] = ()  # COPY and RUN, in order
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    entrypoint: Sequence[str] = ()


@dataclass(frozen=True)
class Layer:
    """`upper`: what it adds, as a folder that overlays understand; `archive`: the same as OCI has it."""

    upper: Path
    archive: Path


def read_recipes(texts: Sequence[str]) -> dict[str, Stage]:
    """All stages, by name. A stage has its parent's environment, user and entry point where it says none."""
    stages: dict[str, Stage] = {}
    current: Stage | None = None
    for text in texts:
        current = None
        for word, rest in _instructions(text):
            if word == "ARG" and current is None:
                continue  # which Debian: here it is the sandbox's
            if word == "FROM":
                said = re.fullmatch(r"(\S+)\s+AS\s+(\S+)", rest)
                if said is None:
                    raise BuildError(f"a recipe says FROM {rest}; the sandbox understands FROM PARENT AS NAME")
                parent, name = said.groups()
                above = stages.get(parent, Stage(name, parent))
                current = replace(above, name=name, parent=parent, deeds=())
            elif current is None:
                raise BuildError(f"a recipe begins with {word} {rest!r}; it has to begin with FROM")
            else:
                current = _with(current, word, rest)
            stages[current.name] = current
    return stages


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip() and not line.startswith("#"):
            word, _, rest = line.strip().partition(" ")
            yield word, rest.strip()


def _with(stage: Stage, word: str, rest: str) -> Stage:
    match word:
        case "COPY" | "RUN":
            return replace(stage, deeds=(*stage.deeds, (word, rest)))
        case "ENV":
            return replace(stage, environment={**stage.environment, **dict(each.split("=", 1) for each in shlex.split(rest))})
        case "USER":
            return replace(stage, user=rest)
        case "ENTRYPOINT":
            return replace(stage, entrypoint=tuple(json.loads(rest)))
    raise BuildError(
        f"stage {stage.name} of a recipe says {word}, which the sandbox does not understand; it knows COPY, RUN, ENV, USER and ENTRYPOINT"
    )


class Kitchen:
    """Builds stages over one root."""

    def __init__(self, root: Path, checkout: Path = CHECKOUT) -> None:
        if not (checkout / RECIPES[0]).exists():
            raise UsageError(f"the images' recipes (images/) are not in {checkout}: run it from a checkout")
        self._root, self._checkout = root, checkout
        self.stages = read_recipes([(checkout / recipe).read_text() for recipe in RECIPES])

    def key(self, name: str) -> str:
        """Changes when anything that the stage is made of does."""
        if name not in self.stages:
            return digest(self._root.name, WAY)
        stage = self.stages[name]
        parts = [content for word, rest in stage.deeds if word == "COPY" for content in self._contents(rest)]
        return digest(self.key(stage.parent), repr(stage), *parts)

    def layers(self, name: str, step: Step) -> list[Layer]:
        """Of the stage, the lowest first; made where the cache has them not. The root is not among them."""
        if name not in self.stages:
            return []
        stage = self.stages[name]
        below = self.layers(stage.parent, step)
        if not stage.deeds:
            return below
        step.say(name)
        made = entry(f"layers/{name}-{self.key(name)}", lambda folder: self._make(stage, below, folder))
        return [*below, Layer(made / "upper", made / "layer.tar")]

    def _make(self, stage: Stage, below: Sequence[Layer], folder: Path) -> None:
        log = cache_root() / "logs" / f"image-{stage.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        upper = folder / "upper"
        upper.mkdir()
        lower = [layer.upper for layer in reversed(below)]
        for word, rest in stage.deeds:
            if word == "COPY":
                self._copy(rest, upper, [*lower, self._root])
            else:
                over(
                    self._root,
                    folder,
                    rest,
                    log,
                    f"stage {stage.name} of the images could not be made: {rest}",
                    lower,
                )
        with tarfile.open(folder / "layer.tar", "w") as archive:
            for path in _found(upper):
                _put(archive, path, str(path.relative_to(upper)))
        for place in ("work", "merged"):
            shutil.rmtree(folder / place, ignore_errors=True)

    def _copy(self, rest: str, upper: Path, below: Sequence[Path]) -> None:
        """As a builder has it: a folder's content goes into the place that is named, a file is that place, or in it where the name ends with `/`."""
        *sources, place = rest.split()
        target = Path(place.lstrip("/"))
        for source in (self._checkout / each for each in sources):
            if source.is_dir():
                _make_folder(target, upper, below)
                shutil.copytree(source, upper / target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*IGNORED))
                (upper / target).chmod(0o755)
            else:
                file = target / source.name if place.endswith("/") else target
                _make_folder(file.parent, upper, below)
                shutil.copy(source, upper / file)

    def _contents(self, rest: str) -> Iterator[bytes]:
        for source in (self._checkout / each for each in rest.split()[:-1]):
            files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
            for file in files:
                if not any(file.match(pattern) or pattern in file.parts for pattern in IGNORED):
                    yield f"{file.relative_to(self._checkout)} {file.stat().st_mode & 0o111:o}".encode()
                    yield file.read_bytes()


def _make_folder(place: Path, upper: Path, below: Sequence[Path]) -> None:
    """With the mode of the one that it lies over, /tmp's above all."""
    for folder in [*reversed(place.parents), place]:
        if not (upper / folder).exists():
            (upper / folder).mkdir()
            there = next((each / folder for each in below if (each / folder).is_dir()), None)
            (upper / folder).chmod(stat.S_IMODE(there.stat().st_mode) if there else 0o755)


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
    member.mtime = 0  # the same layer is the same blob, whenever it was made
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
