"""The demo's story: what is done on two nodes that pods share with Slurm's own jobs, what must come true, and what is said about it.

Comes in: a sandbox with two hybrid nodes, its bridge, what is watched, and the show. Goes out: the files of `examples/demo/` given to kubectl and sbatch as a user would, and a SandboxError that says what was expected and what is, as soon as
something does not come true. What must stay true: nothing is said that was not asked of a server, or read in what a container or a job wrote itself. Nothing is cleaned up here: the sandbox goes as a whole.
"""

from pathlib import Path

from slinky.bridge.keys import CONDITION, JOB_ID
from slinky.bridge.settings_file import load_settings
from slinky.cli.demo.deeds import Deeds, Words, expect
from slinky.cli.demo.lives import Life, Link, Phase
from slinky.cli.demo.show import Show
from slinky.explain.gathering import gather_job, gather_pod
from slinky.explain.report import Explanation, explain_job, explain_pod, text
from slinky.kube import Pod, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobState, SlurmClient

__all__ = ["EXAMPLES", "NAMESPACE", "NODES", "Story"]

NAMESPACE = "team"
NODES = ("node-0", "node-1")
EXAMPLES = Path(__file__).parents[4] / "examples/demo"
GANG = 4
JOB_OF_A_POD = f"jsonpath={{.metadata.labels.{JOB_ID.replace('.', chr(92) + '.')}}}"
SACCT = "JobID%5,JobName%22,QOS%7,State%10,ExitCode,NodeList%10"  # fits into 80 columns


class Story:
    """`tell()` tells all of it."""

    def __init__(self, show: Show, sandbox: Sandbox, bridge: SandboxBridge, slurm: SlurmClient) -> None:
        self._show, self._seen, self._slurm, self._sandbox = show, show.seen, slurm, sandbox
        self._deeds = Deeds(show, sandbox, EXAMPLES, NAMESPACE)
        self._words = Words(sandbox)
        self._settings, self._access = load_settings(bridge.config), from_kubeconfig(sandbox.kubeconfig)
        self._jobs: list[int] = []  # those that sacct is asked about at the end

    async def tell(self) -> None:
        for chapter in (self._gang, self._chain, self._preemption, self._accounts):
            await chapter()
            await self._show.breathe()

    # 1

    async def _gang(self) -> None:
        show, each = self._show, GANG // len(NODES)
        show.chapter(f"1. A gang: {GANG} pods that start together, one job of Slurm, in rank order", "1. gang by rank")
        await self._deeds.show("ring.yaml")
        await self._deeds.apply("ring.yaml")
        names = [f"ring-{rank}" for rank in range(GANG)]
        await self._until_they("run", Phase.RUNNING, *names)
        lives = [self._life(name) for name in names]
        jobs = sorted({life.last.job_id for life in lives})
        expect(len(jobs) == 1, "the gang is one job of Slurm", f"its pods have the jobs {jobs}")
        allocation = await self._slurm.jobs.allocation(jobs[0])
        given = [node.node for node in allocation.nodes]
        places = [(life.last.rank, life.last.nodes[0]) for life in lives]
        right = [(rank, given[rank // each]) for rank in range(GANG)]
        expect(len(given) == len(NODES), f"Slurm gave job {jobs[0]} {len(NODES)} nodes", f"it gave {', '.join(given)}")
        expect(places == right, f"rank by rank the pods lie on {', '.join(given)}, in Slurm's order", f"ranks and nodes are {places}")
        told = ""

        async def all_said() -> bool:
            nonlocal told
            told = await self._deeds.kubectl("logs", "--namespace", NAMESPACE, "--selector=batch.kubernetes.io/job-name=ring")
            return len(told.split("\n")) > GANG

        await show.until("each rank has said who it is", all_said)
        said = sorted(told.strip().splitlines())
        expect(said == [f"rank {rank} of {GANG} on {node}" for rank, node in right], "the containers know their rank and node", str(said))
        show.command(f"kubectl logs -n {NAMESPACE} -l batch.kubernetes.io/job-name=ring", "\n".join(said))
        show.say(f"job {jobs[0]} has {given[0]} and {given[1]}; ranks 0 and 1 run on the first, 2 and 3 on the second, and know it")
        self._jobs += jobs

    # 2

    async def _chain(self) -> None:
        show = self._show
        show.chapter(
            "2. sbatch, then a pod, then sbatch: each waits for the last by afterok, on one node", "2. sbatch → pod → sbatch, by afterok"
        )
        ring = self._jobs[0]
        await self._deeds.show("prepare.sh", "train.yaml")
        prepare = await self._deeds.sbatch("prepare.sh")
        await self._deeds.apply("train.yaml", {"PREPARE": str(prepare)})
        await self._explained("job", str(prepare), "job-resources")
        status = self._seen.status(ring)
        expect(status is not None and status.is_running, f"job {ring}, the gang's, still has both nodes", str(status))
        show.say(f"job {prepare} waits for a node: both are the gang's, job {ring}")
        found = await self._explained("pod", f"{NAMESPACE}/train", "job-dependency")
        train = self._seen.job_id(self._pod("train"))
        expect(f"afterok:{prepare}" in text(found), f"pod train waits for job {prepare}", text(found))
        show.say(f"pod train, job {train}, waits for a job of Slurm's own: afterok:{prepare}")
        await self._deeds.show("publish.sh")
        publish = await self._deeds.sbatch("publish.sh", f"--dependency=afterok:{train}")
        self._jobs += [prepare, train, publish]
        await show.until(
            "the three have run one after the other",
            lambda: all(self._is_over(name, of_pod=pod) for name, pod in (("prepare", False), ("train", True), ("publish", False))),
            90,
            lambda: self._states("prepare", "train", "publish"),
        )
        for job_id in (prepare, train, publish):
            await self._until_ended(job_id, JobState.COMPLETED)
        first, second, third = (self._life(name, of_pod=pod) for name, pod in (("prepare", False), ("train", True), ("publish", False)))
        for before, after in ((first, second), (second, third)):
            began, ended = after.began(Phase.RUNNING), before.ended
            expect(
                began is not None and ended is not None and began >= ended, f"{after.title} began after {before.title}", f"{began}, {ended}"
            )
        expect(
            {life.last.nodes for life in (first, second, third)} == {NODES[:1]},
            f"all three ran on {NODES[0]}",
            str([life.last.nodes for life in (first, second, third)]),
        )
        published = self._words.file(NODES[0], "published")
        right = f"published by job {publish}: model of job {train} from data of job {prepare}"
        expect(published == right, f"the last one has what the first two made ({right})", published or "it wrote nothing")
        show.command(f"cat /var/tmp/published    # on {NODES[0]}", published)

    # 3

    async def _preemption(self) -> None:
        show = self._show
        show.chapter("3. Preemption: the next begins when the last one's containers are gone", "3. preemption with grace")
        whole = await self._whole_nodes()
        await self._deeds.show("low.yaml", edits=whole)
        await self._deeds.apply("low.yaml", whole)
        await self._until_they("run", Phase.RUNNING, "low-0", "low-1")
        victims = {life.last.nodes[0]: life for life in (self._life("low-0"), self._life("low-1"))}
        expect(sorted(victims) == list(NODES), "each has a node of its own", f"they are on {', '.join(victims)}")
        names = {node: self._full_name(life) for node, life in victims.items()}
        for node, name in names.items():
            await self._until_begun(node, name)
        await self._deeds.show("urgent.yaml", "urgent.sh", edits=whole)
        await self._deeds.apply("urgent.yaml", whole)
        batch = await self._deeds.sbatch("urgent.sh")
        lost = [life.last.job_id for life in victims.values()]
        await show.until(f"Slurm has preempted the jobs {lost}", lambda: set(lost) <= set(self._seen.preempted))
        await self._until_held(batch, victims)
        pod = self._seen.job_id(self._pod("urgent"))
        by_node = {NODES[0]: pod, NODES[1]: batch}
        for node, life in victims.items():
            self._seen.links.append(Link("preempts", by_node[node], life.last.job_id, self._seen.preempted[life.last.job_id]))
        await show.until(
            "the urgent ones have begun, by their own word",
            lambda: all(self._words.at(node, "urgent", "begins") is not None for node in NODES),
            90,
        )
        for node, name in names.items():
            ended, began = self._words.at(node, name, "ends"), self._words.at(node, "urgent", "begins")
            expect(
                ended is not None and began is not None and began >= ended,
                f"on {node} the urgent one began after {name} had ended",
                f"{ended}, {began}",
            )
            assert ended is not None
            assert began is not None
            show.say(
                f"{node}: {name} wrote its checkpoint and ended by itself; {began - ended:.1f} s later the urgent {'pod' if by_node[node] == pod else 'job'} began"
            )
        await show.until(
            "the urgent ones are over, and the pods that had given way too, made anew by their Job",
            lambda: self._is_over("urgent", of_pod=True) and self._is_over("urgent", of_pod=False) and self._is_done("low"),
            90,
            lambda: self._states("urgent", "low-0", "low-1"),
        )
        resumed = sorted(name for node in NODES for name in self._words.who(node, "resumes"))
        expect(len(resumed) == len(NODES), "both pods that had given way went on from a checkpoint", f"{resumed} did")
        self._jobs += [*lost, pod, batch, *(self._life(name).last.job_id for name in ("low-0", "low-1"))]
        show.say(f"the Job made both pods anew, and they went on from the checkpoints ({', '.join(resumed)})")

    async def _whole_nodes(self) -> dict[str, str]:
        """The files are written for nodes of two CPUs, and the sandbox's have as many as the machine."""
        cpus = {node.cpus for node in await self._slurm.nodes.all() if node.name in NODES}
        expect(len(cpus) == 1, "both nodes have the same number of CPUs", str(cpus))
        count = cpus.pop()
        return {} if count == 2 else {'cpu: "2"': f'cpu: "{count}"'}

    async def _until_begun(self, node: str, name: str) -> None:
        await self._show.until(f"{name} has begun, by its own word", lambda: self._words.at(node, name, "begins") is not None)

    async def _until_held(self, batch: int, victims: dict[str, Life]) -> None:
        """Slurm has given both nodes away; nobody has begun, and both say why."""
        show = self._show

        def not_free() -> bool:
            said = self._pod("urgent").condition(CONDITION)
            return said is not None and said.reason == "NodeNotFree"

        await show.until("pod urgent waits for its node to be free", not_free, 30)
        await self._explained("pod", f"{NAMESPACE}/urgent", "pod-node-not-free")
        name = self._full_name(victims[NODES[1]])
        words = f"job {batch} waits on {NODES[1]} for {NAMESPACE}/{name}"
        await show.until(f"the prolog on {NODES[1]} says: {words}", lambda: words in self._words.file(NODES[1], "prolog.log"), 30)
        for node, life in victims.items():
            now, began = self._seen.lives[life.last.key], self._words.at(node, "urgent", "begins")
            expect(
                now.last.phase in (Phase.RUNNING, Phase.ENDING), f"{life.title} still has containers on {node}", f"it is {now.last.phase}"
            )
            expect(began is None, f"nothing has begun on {node} yet", f"the urgent one began at {began}")
        show.say(
            f"Slurm has given both nodes away; the pods that give way write their checkpoints, and nobody begins beside them: the bridge holds pod urgent, the prolog on {NODES[1]} job {batch}"
        )

    # 4

    async def _accounts(self) -> None:
        show = self._show
        show.chapter("4. One account of all of it")
        preempted = set(self._seen.preempted)
        for job_id in self._jobs:
            await self._until_accounted(job_id, "PREEMPTED" if job_id in preempted else "COMPLETED")
        jobs = ",".join(map(str, sorted(self._jobs)))
        show.command(
            f"sacct -X -j {jobs} …", await self._deeds.head("sacct", "--allusers", "--allocations", f"--jobs={jobs}", f"--format={SACCT}")
        )

    # What the chapters are made of

    def _pod(self, name: str) -> Pod:
        found = self._seen.pods.get(name, NAMESPACE)
        if found is None:
            raise SandboxError(f"the demo expected that pod {name} is there; the API server has none")
        return found

    def _life(self, name: str, *, of_pod: bool = True) -> Life:
        found = self._seen.life(name, of_pod=of_pod)
        if found is None:
            raise SandboxError(f"the demo expected that {'pod' if of_pod else 'job'} {name} was seen; it was not")
        return found

    def _full_name(self, life: Life) -> str:
        return next((pod.metadata.name for pod in self._seen.pods.list() if pod.metadata.uid == life.last.key), life.last.name)

    def _is_over(self, name: str, *, of_pod: bool) -> bool:
        found = self._seen.life(name, of_pod=of_pod)
        return found is not None and found.last.phase is Phase.OVER

    def _is_done(self, job: str) -> bool:
        """Every index of the Job has succeeded."""
        lives = [self._seen.life(f"{job}-{index}", of_pod=True) for index in range(len(NODES))]
        return all(life is not None and life.last.outcome == "Succeeded" for life in lives)

    def _states(self, *names: str) -> str:
        found = [life for life in self._seen.lives.values() if life.last.name in names]
        return ", ".join(f"{life.title} {life.last.phase}" for life in found)

    async def _until_they(self, verb: str, phase: Phase, *names: str) -> None:
        def all_do() -> bool:
            found = [self._seen.life(name, of_pod=True) for name in names]
            return all(life is not None and life.last.phase is phase for life in found)

        await self._show.until(f"pods {', '.join(names)} {verb}", all_do, how_far=lambda: self._states(*names))

    async def _until_ended(self, job_id: int, state: JobState) -> None:
        def ended() -> bool:
            status = self._seen.status(job_id)
            return status is not None and status.state is state

        await self._show.until(f"Slurm says {state} of job {job_id}", ended, how_far=lambda: str(self._seen.status(job_id)))

    async def _until_accounted(self, job_id: int, state: str) -> None:
        """slurmdbd hears of it a moment later."""
        told = ""

        async def known() -> bool:
            nonlocal told
            told = (await self._deeds.head("sacct", "-anPX", f"--jobs={job_id}", "--format=State")).strip()
            return told == state

        await self._show.until(f"sacct says {state} of job {job_id}", known, how_far=lambda: f"it says {told or 'nothing'}")

    async def _explained(self, kind: str, name: str, code: str) -> Explanation:
        """What `slinky explain` says, once it has found what it should: Slurm gives a reason a moment after it has looked at a job."""
        found: Explanation | None = None

        async def told() -> bool:
            nonlocal found
            found = await self._explain(kind, name)
            return code in [finding.code for finding in found.findings]

        await self._show.until(
            f"slinky explain finds {code} for {kind} {name}",
            told,
            30,
            lambda: f"{found.findings[0].code}: {found.findings[0].seen}" if found and found.findings else "",
        )
        assert found is not None
        self._show.command(f"slinky explain {kind} {name}", text(found))
        return found

    async def _explain(self, kind: str, name: str) -> Explanation:
        if kind == "job":
            return explain_job(await gather_job(self._settings, self._access, int(name)))
        home, _, last = name.partition("/")
        return explain_pod(await gather_pod(self._settings, self._access, home, last))
