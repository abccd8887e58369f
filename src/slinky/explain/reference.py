"""docs/explain.md and docs/doctor.md: what the commands do, and every finding with its meaning and what to change, made from the catalogue.

Pure. `slinky explain reference` and `slinky doctor --reference` print them; a test holds them against the files.
"""

from collections.abc import Iterable, Iterator

from slinky.explain.catalogue import AREAS, CATALOGUE
from slinky.explain.findings import Entry

__all__ = ["doctor_reference", "explain_reference"]

BY_BOTH = ("sides", "bridge")
EXPLAINED = (*BY_BOTH, "pod", "job", "node")
SEVERITIES = "Three severities: `error` (does not work), `warning` (works, but not as it should), `note` (how things are)."

EXPLAIN = f"""\
# Why does it wait?

Made from the code: `slinky explain reference > docs/explain.md`.

```sh
slinky explain pod train-0 -n team       # or team/train-0; also: kubectl slurm explain pod team/train-0
slinky explain job 4711
slinky explain node w17                  # by Kubernetes' name or Slurm's
slinky explain --whatif "8 gpu 4h"       # when would this start?
```

Each tells what stands in the way with what to do about it, and below that what Kubernetes and Slurm say in their own words. `-o json` is for programs. Nothing is changed on either side.

- **As a plugin of kubectl's**: `kubectl slurm explain|doctor|top|translate …`, where `kubectl-slurm`, which is installed beside `slinky`, is in PATH.
- **What it needs**: a kubeconfig that may read pods, Events, nodes, namespaces, Jobs and the bridge's Lease, and may list `deviceclasses` (`resource.k8s.io`; without that right `explain` cannot tell whether a DeviceClass serves a resource, and says so), and a token for slurmrestd: the bridge's configuration says where both are (`--config`, SLINKY_BRIDGE_CONFIG); without one, SLINKY_SLURM_URL and SLINKY_SLURM_TOKEN_FILE. What may not be read is a finding, and the rest is told all the same.
- **What it costs**: about ten calls, each with a deadline of five seconds. How many jobs go first is told where Slurm has no more than 1,000 jobs.
- **Exit code**: 0 where it could be explained, 1 where there is no such thing or a side could not be asked.

## When would this start?
`slinky explain --whatif "8 gpu 4h"` asks Slurm itself where `sbatch` is at hand (`sbatch --external --test-only`: its will-run test, which knows priorities, reservations and limits; `--sbatch` names the command where it is not in PATH). An `sbatch` is asked only if it is proven to belong to the configured Slurm: the `scontrol` beside it must tell the cluster name and the start time of slurmctld that slurmrestd tells (Slurm 26.05); else a line on stderr says why it was not asked. Without it, it is an estimate from what slurmrestd tells: the earliest time at which enough is free if running jobs end at their time
limits, as if no other job went first; it also tells how many jobs wait already. A start that depends on the end of jobs without a time limit is unknown: Slurm plans as if each ended a year after its start. Words: `8 gpu`, `16 cpu`, `64G` (memory, all of it), `2 nodes`, `4h`, `30m`, `2d`.

{SEVERITIES}
"""

DOCTOR = f"""\
# Is the installation sound?

Made from the code: `slinky doctor --reference > docs/doctor.md`.

```sh
slinky doctor                            # or: kubectl slurm doctor
slinky doctor --bridge-user system:serviceaccount:slinky:slurm-bridge --strict -o json
slinky doctor --part operator            # of the operator and its clusters only; also: bridge, exporter
```

Looks at an installation from both sides and says what to change, line by line. Nothing is changed. An area that could not be looked at, as a side does not answer, is told as not looked at.

- **What is looked at**: the bridge; the operator, where there is its Lease, its webhook or an object of its kinds; exporters, where a Service has the label `app.kubernetes.io/name=slurm-exporter`. `--part` names some of the three, and one that is named and is not there is a finding. The operator's names are taken from `--operator-config` (SLINKY_OPERATOR_CONFIG), without one as by default; an exporter outside of Kubernetes is named by `--exporter-url`.
- **Of the operator** nothing is asked of any Slurm: what it knows stands in its objects. **An exporter** is read through the API server (`get` on `services/proxy`), which counts as a scrape; of its Secret only the token's user and times are looked at.
- **Exit code**: 0 where there is no error, 1 where there is one; with `--strict` a warning counts too.
- **Whose rights**: those of `--bridge-user`; without it those of the first of `admission.bridgeUsers`, else of the ServiceAccount `slurm-bridge` in the bridge's namespace where there is one, else of whoever asks. To ask for somebody else's needs `create` on `subjectaccessreviews`.

{SEVERITIES}
"""


def explain_reference() -> str:
    return EXPLAIN + "".join(_tables(EXPLAINED))


def doctor_reference() -> str:
    return DOCTOR + "".join(_tables(area for area in AREAS if area not in EXPLAINED or area in BY_BOTH))


def _tables(areas: Iterable[str]) -> Iterator[str]:
    for area in areas:
        yield f"\n## {AREAS[area]}\n| finding | severity | what it means | what to change |\n|---|---|---|---|\n"
        for entry in CATALOGUE.values():
            if entry.area == area:
                yield _row(entry)


def _row(entry: Entry) -> str:
    change = entry.general_change
    shown = "depends; it is said" if change == "ADVICE" else change
    return f"| `{entry.code}` | {entry.severity} | {_cell(entry.meaning)} | {_cell(shown)} |\n"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")
