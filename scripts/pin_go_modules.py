#!/usr/bin/env python3
"""Write `src/slinky/sandbox/gomods/*/go.{mod,sum}` anew from `versions.toml`.

Comes in: the versions file. Goes out: one Go module a program, whose go.sum pins every source that a build reads. What must stay
true: the committed files are what this script writes, so a version is never changed by hand in two places.

Usage: scripts/pin_go_modules.py [NAME ...]     (all of them by default; needs Go and the Go module proxy)
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

SANDBOX = Path(__file__).resolve().parent.parent / "src/slinky/sandbox"
KUBERNETES = "k8s.io/kubernetes"
HERE = "."  # a program of our own over the module's packages, in main.go beside go.mod
KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet", "kube-proxy")


def go(folder: Path, *arguments: str) -> str:
    return subprocess.run(["go", *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def staging_replacements(folder: Path, version: str) -> str:
    """Kubernetes replaces its staging modules by folders of its own tree; outside of it they are the published modules."""
    described = json.loads(go(folder, "mod", "download", "-json", f"{KUBERNETES}@v{version}"))
    staged = re.findall(r"^\s+(k8s\.io/\S+) => \./staging/", Path(described["GoMod"]).read_text(), re.MULTILINE)
    published = "v0." + version.removeprefix("1.")
    return "\nreplace (\n" + "".join(f"\t{name} => {name} {published}\n" for name in staged) + ")\n"


def pin(name: str, module: str, version: str, packages: list[str], go_version: str) -> None:
    folder = SANDBOX / "gomods" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.sum").unlink(missing_ok=True)
    text = f"module slinky.slurm.net/sandbox/{name}\n\ngo {go_version}\n\nrequire {module} v{version}\n"
    (folder / "go.mod").write_text(text)
    if module == KUBERNETES:
        text += staging_replacements(folder, version)
    if packages != [HERE] and packages:
        text += "\ntool (\n" + "".join(f"\t{package}\n" for package in packages) + ")\n"
    (folder / "go.mod").write_text(text)
    if packages:
        go(folder, "mod", "tidy")
    else:
        go(folder, "mod", "download", module)
    print(f"{name}: {module} v{version}", flush=True)


def main(wanted: list[str]) -> None:
    versions = tomllib.loads((SANDBOX / "versions.toml").read_text())
    modules: dict[str, tuple[str, str, list[str]]] = {}
    for release, version in versions["kubernetes"]["releases"].items():
        modules[f"kubernetes-{release}"] = (KUBERNETES, version, [f"{KUBERNETES}/cmd/{p}" for p in KUBERNETES_PROGRAMS])
    for name, program in versions["programs"].items():
        modules[name] = (program["module"], program["version"], [program["package"]])
    for name, source in versions["manifests"].items():
        modules[name] = (source["module"], source["version"], [])
    if unknown := set(wanted) - set(modules):
        sys.exit(f"not in versions.toml: {', '.join(sorted(unknown))}; there is {', '.join(modules)}")
    for name in wanted or modules:
        pin(name, *modules[name], versions["go"]["minimum"])


if __name__ == "__main__":
    main(sys.argv[1:])
