"""The ConfigMaps that a Controller has files from: none of them may hold a file that is the operator's.

Pure. Comes in: a Controller and the names of the files in each ConfigMap, as far as it is there. A ConfigMap that is not there yet is no problem of the spec: the Controller says Progressing until it is.
"""

from collections.abc import Iterator, Mapping, Sequence

from slinky.operator.kinds import Controller, NameReference
from slinky.operator.kinds.reading import Problem

__all__ = ["file_problems", "referenced"]

OWN = {
    "slurm.conf": "put lines into extraConf instead",
    "slurmdbd.conf": "put lines into the Accounting's extraConf instead",
    "slurm.key": "name its Secret in slurmKeyRef instead",
    "jwt.key": "name its Secret in jwtKeyRef instead",
    "jwks.json": "name its ConfigMap in jwksKeyRef instead",
}


def file_problems(controller: Controller, files: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    """`files`: of each ConfigMap that is there, the names in it."""
    held: dict[str, str] = {}
    for path, reference in referenced(controller):
        for name in files.get(reference.name, ()):
            if name in OWN:
                yield Problem(path, f"ConfigMap {reference.name} has a file {name}, which the operator makes; {OWN[name]}")
            elif held.get(name, reference.name) != reference.name:
                yield Problem(
                    path,
                    f"ConfigMap {reference.name} has a file {name}, and so has {held[name]}: both would stand in /etc/slurm; give one another name",
                )
            held.setdefault(name, reference.name)


def referenced(controller: Controller) -> Iterator[tuple[str, NameReference]]:
    """With the path of each."""
    spec = controller.spec
    for field, references in {
        "configFileRefs": spec.config_file_refs,
        "prologScriptRefs": spec.prolog_script_refs,
        "epilogScriptRefs": spec.epilog_script_refs,
        "prologSlurmctldScriptRefs": spec.prolog_slurmctld_script_refs,
        "epilogSlurmctldScriptRefs": spec.epilog_slurmctld_script_refs,
    }.items():
        yield from ((f"spec.{field}[{number}]", each) for number, each in enumerate(references or ()))
