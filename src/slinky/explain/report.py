"""What was found, for people and for programs: one explanation of one object, as text or JSON. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from slinky.explain.facts import Facts
from slinky.explain.findings import Finding, Severity, worst
from slinky.explain.jobs import job_findings, job_lines
from slinky.explain.nodes import node_findings, node_lines
from slinky.explain.pods import pod_findings, pod_lines

__all__ = ["Explanation", "as_json", "explain_job", "explain_node", "explain_pod", "finding_lines", "text"]

RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`kubernetes` and `slurm` are what each side says, as it says it."""

    about: str
    findings: tuple[Finding, ...]
    kubernetes: tuple[str, ...] = ()
    slurm: tuple[str, ...] = ()

    @property
    def was_found(self) -> bool:
        """Whether there was something to explain, and both sides could be asked about it."""
        return not any(
            found.code.endswith("-not-found") or (found.area == "sides" and found.severity is Severity.ERROR) for found in self.findings
        )


def explain_pod(facts: Facts) -> Explanation:
    return Explanation(
        about=f"pod {facts.namespace}/{facts.name}",
        findings=_sorted(pod_findings(facts)),
        kubernetes=tuple(pod_lines(facts)),
        slurm=tuple(job_lines(facts.slurm.jobs, facts.now, facts.slurm.queue)),
    )


def explain_job(facts: Facts) -> Explanation:
    pods = [
        f"pod {pod.metadata.key} is {pod.status.phase}{f' on {pod.spec.node_name}' if pod.spec.node_name else ''}"
        for pod in facts.kube.pods
    ]
    more = [f"and {len(pods) - 10} more pods"] if len(pods) > 10 else []
    return Explanation(
        about=f"job {facts.name}",
        findings=_sorted([*facts.troubles, *job_findings(facts)]),
        kubernetes=(*pods[:10], *more),
        slurm=tuple(job_lines(facts.slurm.jobs, facts.now, facts.slurm.queue)),
    )


def explain_node(facts: Facts) -> Explanation:
    kubernetes, slurm = node_lines(facts)
    return Explanation(about=f"node {facts.name}", findings=_sorted(node_findings(facts)), kubernetes=tuple(kubernetes), slurm=tuple(slurm))


def _sorted(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The worst first; otherwise as they were found."""
    return tuple(sorted(findings, key=lambda found: RANK[found.severity]))


def as_json(found: object) -> str:
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def text(explanation: Explanation) -> str:
    return "\n".join(_lines(explanation)) + "\n"


def _lines(explanation: Explanation) -> Iterator[str]:
    yield f"{explanation.about}: {_verdict(explanation.findings)}"
    yield from finding_lines(explanation.findings)
    for side, lines in (("Kubernetes says", explanation.kubernetes), ("Slurm says", explanation.slurm)):
        if lines:
            yield ""
            yield side
            yield from (f"  {line}" for line in lines)


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    for found in findings:
        yield f"  {found.severity.upper():7}  {found.code}: {found.about}: {found.seen}"
        if found.change:
            yield f"           → {found.change}"


def _verdict(findings: Sequence[Finding]) -> str:
    match worst(findings):
        case Severity.ERROR:
            return "something must be changed"
        case Severity.WARNING:
            return "something should be changed"
    return "nothing to change"
