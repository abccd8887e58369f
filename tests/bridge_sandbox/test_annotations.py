"""Every job annotation: what it says reaches Slurm, and shows in `scontrol show job`; and a malformed value is refused by the webhook on each kind that can carry it."""

import re
from typing import Any

import pytest

from slinky.bridge.annotations import SUFFIXES
from slinky.bridge.keys import JOB_ID, SETTINGS
from slinky.kube import NODES, ApiError
from slinky.slurm import NodeDescription, expand
from slinky.slurm.tres import read_tres
from tests.bridge_sandbox.conftest import Team

pytestmark = pytest.mark.sandbox

# Suffix → what is said, and what `scontrol show job` shows then. WAITS is a job that waits, SOME a node of the partition.
SINGLE = {
    "account": ("physics", "Account=physics"),
    "begin": ("2030-01-31T18:00", "EligibleTime=2030-01-31T18:00:00"),
    "comment": ("for the paper", "Comment=for the paper"),
    "constraints": ("bridge", "Features=bridge "),
    "cpu-per-task": ("3", "CPUs/Task=3"),
    "deadline": ("2030-01-31T18:00:00Z", "Deadline=2030-01-31T18:00:00"),
    "dependency": ("afterany:WAITS", "Dependency=afterany:WAITS(unfulfilled)"),
    "exclude": ("SOME", "ExcNodeList=SOME"),
    "exclusive": ("true", "Exclusive=NODE"),
    "gres": ("gpu:2", "TresPerNode=gres/gpu:2"),
    "group-id": ("daemon", "GroupId=daemon(1)"),
    "job-name": ("my job", "JobName=my job"),
    "licenses": ("matlab:2", "Licenses=matlab:2"),
    "mem-per-node": ("3Gi", "MinMemoryNode=3G"),
    "nice": ("77", "Nice=77"),
    "partition": ("bridge", "Partition=bridge"),
    "prefer": ("bridge", "Prefer=bridge"),
    "priority": ("4711", "Priority=4711"),
    "qos": ("low", "QOS=low"),
    "reservation": ("RESERVATION", "Reservation=RESERVATION"),
    "timelimit": ("1:30:00", "TimeLimit=01:30:00"),
    "user-id": ("alice", "GroupId=users("),  # a user is not taken without a group
    "wckey": ("paper", "WCKey=paper"),
}
GANG = {
    "contiguous": ("true", "Contiguous=1"),
    "gang": ("true", "NumTasks=2"),
    "max-nodes": ("1", "NumNodes=1-1 "),
    "min-nodes": ("2", "NumNodes=2-2 "),
    "ntasks-per-node": ("1", "NtasksPerN:B:S:C=1:0:*:"),
    "segment": ("1", "SegmentSize=1"),
    "switches": ("1@2:00", "Switches=1@00:02:00"),
}
NOT_FOR_SLURM = {"signal"}  # the bridge delivers it itself

WRONG = {
    "account": "a b",
    "begin": "tomorrow",
    "comment": "two\nlines",
    "constraints": "",
    "contiguous": "maybe",
    "cpu-per-task": "0",
    "deadline": "never",
    "dependency": "afterok",
    "exclude": "n[1-",
    "exclusive": "perhaps",
    "gang": "2",
    "gres": "gpu;2",
    "group-id": "a b",
    "job-name": "",
    "licenses": "matlab:x",
    "max-nodes": "0",
    "mem-per-node": "much",
    "min-nodes": "-1",
    "nice": "very",
    "ntasks-per-node": "0",
    "partition": "a b",
    "prefer": "",
    "priority": "-1",
    "qos": "a/b",
    "reservation": "a b",
    "segment": "x",
    "signal": "USR3@60",
    "switches": "1@soon",
    "timelimit": "soon",
    "user-id": "a b",
    "wckey": "a b",
}


async def test_each_annotation_reaches_slurm_and_shows(team: Team) -> None:
    assert SINGLE.keys() | GANG.keys() | NOT_FOR_SLURM == SUFFIXES, "each annotation that there is"
    await team.create(team.pod("waits", said={"priority": "0"}))
    (waits,) = await team.until_labelled("waits")
    reservation = f"r-{team.partition.name}"
    await team.head(
        "scontrol",
        "create",
        f"ReservationName={reservation}",
        "StartTime=now",
        "Duration=60",
        "Users=root",
        f"Nodes={team.partition.nodes[3]}",
    )
    first = team.partition.nodes[0]
    words = {"WAITS": str(waits), "SOME": first, "RESERVATION": reservation}

    def told(text: str) -> str:
        return re.sub("|".join(words), lambda found: words[found[0]], text)

    try:
        for suffix, (value, _) in SINGLE.items():
            # Behind a job that waits they wait too, and are there to be looked at.
            said = {"dependency": f"afterany:{waits}", suffix: told(value)} | ({"group-id": "users"} if suffix == "user-id" else {})
            await team.create(team.pod(suffix, said=said))
        for suffix, (value, _) in GANG.items():
            annotations = team.said(gang="true", dependency=f"afterany:{waits}") | {SETTINGS + suffix: value}
            await team.create(_job(suffix, annotations, parallelism=2))
        shown = {suffix: await _shown(team, suffix) for suffix in (*SINGLE, *GANG)}
        missing = {suffix: told(line) for suffix, (_, line) in (SINGLE | GANG).items() if told(line) not in shown[suffix]}
        assert not missing, "\n\n".join(f"{missing[suffix]} is not in\n{shown[suffix]}" for suffix in missing)
    finally:
        await team.head("scancel", f"--reservation={reservation}")

        async def deleted() -> bool:
            return not await team.head("squeue", "--noheader", f"--reservation={reservation}")

        await team.until("nothing waited for the reservation", deleted)
        await team.head("scontrol", "delete", f"ReservationName={reservation}")


async def test_nodes_to_be_left_out_that_slurm_does_not_know_are_not_named_to_it_until_it_does(team: Team) -> None:
    first, late = team.partition.nodes[0], f"late-{team.partition.name}"
    await team.create(team.pod("p", said={"exclude": f"{first},{late}", "priority": "0"}))
    await team.until_labelled("p")
    assert (await team.job_of("p")).excluded_nodes == first

    async def told() -> bool:
        path = f"/apis/events.k8s.io/v1/namespaces/{team.namespace}/events"
        return f"names {late}, which Slurm does not know: left out".encode() in await team.kube.raw("GET", path)

    async def both() -> bool:
        return set(expand((await team.job_of("p")).excluded_nodes or "")) == {first, late}

    await team.until("an Event said which node Slurm does not know", told)
    await team.slurm.nodes.create(NodeDescription(name=late, address="127.0.0.1", cpus=1, real_memory=100))
    try:
        await team.kube.patch(NODES, first, {"metadata": {"labels": {"test.slinky.slurm.net/late": late}}})
        await team.until("the node that came is left out too", both)
    finally:
        await team.delete_all()
        await team.until_gone("p")
        await team.slurm.nodes.delete(late)
        await team.kube.patch(NODES, first, {"metadata": {"labels": {"test.slinky.slurm.net/late": None}}})


def _template() -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def _job(name: str, annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "annotations": annotations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": _template(), **spec}}


async def _shown(team: Team, name: str) -> str:
    """What Slurm has of the pod of this name, or of those of the Job."""

    async def labelled() -> bool:
        return bool(await _job_id(team, name))

    await team.until(f"{name} had a job", labelled)
    return await team.head("scontrol", "show", "job", await _job_id(team, name))


async def _job_id(team: Team, name: str) -> str:
    for pod in await team.pods():
        if pod.metadata.name == name or pod.metadata.labels.get("batch.kubernetes.io/job-name") == name:
            return pod.metadata.labels.get(JOB_ID, "")
    return ""


def _roots() -> dict[str, tuple[str, dict[str, Any]]]:
    """Kind → path, and a document that is right but for its annotations."""
    job = {"template": _template()}
    replicated = [{"name": "a", "template": {"spec": job}}]
    worker = {"size": 2, "workerTemplate": {"spec": {"containers": _template()["spec"]["containers"]}}}
    return {
        "Pod": ("/api/v1/namespaces/{}/pods", {"spec": _template()["spec"]}),
        "Job": ("/apis/batch/v1/namespaces/{}/jobs", {"spec": job}),
        "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets", {"spec": {"replicatedJobs": replicated}}),
        "LeaderWorkerSet": (
            "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets",
            {"spec": {"replicas": 1, "leaderWorkerTemplate": worker}},
        ),
        "coscheduling PodGroup": ("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups", {"spec": {"minMember": 2}}),
        "PodGroup": (
            "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups",
            {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}},
        ),
        "Workload": (
            "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/workloads",
            {"spec": {"podGroupTemplates": [{"name": "g", "schedulingPolicy": {"gang": {"minCount": 2}}}]}},
        ),
    }


async def _answer(team: Team, path: str, document: dict[str, Any], annotations: dict[str, str]) -> str:
    """Of the API server and its webhooks, with nothing kept: empty where it would be made."""
    api = path.split("/namespaces/")[0].removeprefix("/apis/").removeprefix("/api/")
    kinds = {
        "pods": "Pod",
        "jobs": "Job",
        "jobsets": "JobSet",
        "leaderworkersets": "LeaderWorkerSet",
        "podgroups": "PodGroup",
        "workloads": "Workload",
    }
    meta = {"name": "probe", "annotations": annotations}
    body = {"apiVersion": api, "kind": kinds[path.rpartition("/")[2]], "metadata": meta, **document}
    try:
        await team.kube.raw("POST", path.format(team.namespace), body=body, parameters={"dryRun": "All"})
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", _roots())
async def test_a_malformed_annotation_is_refused_on_each_kind_that_can_carry_it(team: Team, kind: str) -> None:
    assert WRONG.keys() == SUFFIXES, "each annotation that there is"
    path, document = _roots()[kind]
    assert not await _answer(team, path, document, team.said(timelimit="5")), "what is right is let through"
    for suffix, value in WRONG.items():
        answer = await _answer(team, path, document, {SETTINGS + suffix: value})
        assert f"annotation {SETTINGS}{suffix} is {value!r}, and must be " in answer


def _with_template(place: str, template: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    roots = _roots()
    if place == "Job":
        return roots["Job"][0], {"spec": {"template": template}}
    if place == "JobSet":
        return roots["JobSet"][0], {
            "spec": {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": {"template": template}}}]}
        }
    if place == "JobSet's Job":
        job = {"metadata": template["metadata"], "spec": {"template": _template()}}
        return roots["JobSet"][0], {"spec": {"replicatedJobs": [{"name": "a", "template": job}]}}
    bare = {
        "metadata": template.get("metadata", {}),
        "spec": {key: value for key, value in template["spec"].items() if key != "restartPolicy"},
    }
    worker = {"size": 2, "workerTemplate": {"spec": {"containers": _template()["spec"]["containers"]}}}
    return roots["LeaderWorkerSet"][0], {"spec": {"replicas": 1, "leaderWorkerTemplate": worker | {place: bare}}}


@pytest.mark.parametrize("place", ["Job", "JobSet", "JobSet's Job", "leaderTemplate", "workerTemplate"])
async def test_what_is_wrong_with_a_template_is_refused_with_its_root(team: Team, place: str) -> None:
    right, wrong = ({"metadata": {"annotations": {SETTINGS + "timelimit": value}}, **_template()} for value in ("5", "soon"))
    assert not await _answer(team, *_with_template(place, right), {})
    assert f"annotation {SETTINGS}timelimit is 'soon', and must be minutes" in await _answer(team, *_with_template(place, wrong), {})
    if place != "JobSet's Job":
        placed = {"metadata": {}, "spec": _template()["spec"] | {"nodeName": "n1"}}
        assert "spec.nodeName is 'n1': Slurm chooses the node" in await _answer(team, *_with_template(place, placed), {})


async def test_a_set_whose_members_cannot_be_placed_together_is_refused(team: Team) -> None:
    """It says nothing else to the bridge."""
    for key, why in (
        ("topology.kubernetes.io/zone", "kept apart by topology.kubernetes.io/zone, which Slurm cannot be told"),
        ("kubernetes.io/hostname", ""),
    ):
        apart = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": key}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
        template = {"metadata": {"labels": {"app": "x"}}, "spec": _template()["spec"] | {"affinity": affinity}}
        answer = await _answer(team, *_with_template("JobSet", template), {})
        assert why in answer
        assert bool(answer) is bool(why)


async def test_a_gang_never_uses_more_on_a_node_than_annotations_per_node_set_aside_there(team: Team) -> None:
    """gres gpu:1 holds one pod of 1 GPU on a node; gres gpu:8 holds one of 8 GPUs."""
    container = {"name": "c", "image": "none"}

    def gang(name: str, count: int, asked: dict[str, str], **said: str) -> dict[str, Any]:
        document = _job(name, team.said(gang="true", **said), parallelism=count)
        document["spec"]["template"]["spec"]["containers"] = [container | {"resources": {"requests": asked, "limits": asked}}]
        return document

    await team.create(gang("shy", 4, {"cpu": "1", "memory": "30Gi", "nvidia.com/gpu": "1"}, gres="gpu:1", mem_per_node="64Gi"))
    await _covered(team, "shy", 4, {"gpu": 4}, 4 * 64)
    await team.delete_all()
    await team.kube.raw("DELETE", f"/apis/batch/v1/namespaces/{team.namespace}/jobs", body={"propagationPolicy": "Background"})
    await team.create(gang("wide", 2, {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "8"}, gres="gpu:8"))
    await _covered(team, "wide", 2, {"gpu": 16}, 2)
    twice = gang("twice", 1, {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "4"}, gres="gpu:1,gpu:1,gpu:1,gpu:1")
    with pytest.raises(ApiError, match="gpu is named twice, and Slurm would count only the last one"):
        await team.create(twice)


async def _covered(team: Team, name: str, pods: int, gres: dict[str, float], memory: int) -> None:
    """Each pod on a node of its own, and the job's TRES."""

    async def run() -> bool:
        own = [pod for pod in await team.pods() if pod.metadata.labels.get("batch.kubernetes.io/job-name") == name]
        return len({pod.spec.node_name for pod in own} - {""}) == pods

    await team.until(f"the pods of {name} had a node each", run)
    told = read_tres((await team.slurm.jobs.get(int(await _job_id(team, name)))).tres_alloc_str)
    assert (told.nodes, told.gres, told.memory) == (pods, gres, memory * 1024**3)
