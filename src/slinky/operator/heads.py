"""A cluster's head: what is made for Controllers, RestApis, Accountings and LoginSets, and how each of them stands.

Comes in: one object at a time, as it was written. Goes out: its children, applied, and its status. What must stay true: an object that cannot be made as it says changes nothing and says why; what is wrong with one holds up no other.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from slinky.kube import Key
from slinky.operator import names
from slinky.operator.applying import ApplyError, Body
from slinky.operator.assembling import Assembler
from slinky.operator.children import Owner, Workload
from slinky.operator.conditions import Standing, broken, settled, under_way
from slinky.operator.configuration import bundled, marked
from slinky.operator.keys import random_key
from slinky.operator.kinds import Controller, RestApi, Written
from slinky.operator.objects.controller import controller_objects
from slinky.operator.objects.restapi import restapi_objects
from slinky.operator.objects.view import ClusterView, jwt_key
from slinky.operator.reconfiguring import Progress, Reconfiguring
from slinky.operator.relations import Place
from slinky.operator.site import Site
from slinky.operator.trouble import Trouble

__all__ = ["Heads", "owner_of", "standing_of"]

Make = Callable[[Written], Awaitable[None]]


def owner_of(kind: str, found: Written) -> Owner:
    meta = found.metadata
    return Owner(kind, meta.namespace, meta.name, meta.uid)


def standing_of(workload: Workload | None, daemon: str) -> Standing:
    """How a StatefulSet or Deployment stands for its owner."""
    if workload is None:
        return under_way("Creating", f"{daemon} is being created")
    wanted, status = workload.spec.replicas, workload.status
    if not wanted:
        return settled(f"no {daemon} is wanted", "ScaledToZero")
    if workload.is_settled:
        return settled(f"{status.ready_replicas} of {wanted} {daemon} ready")
    if status.ready_replicas >= wanted:
        return under_way("Updating", f"{status.updated_replicas} of {wanted} {daemon} are of the present template", ready=True)
    return under_way("NotReady", f"{status.ready_replicas} of {wanted} {daemon} ready")


class Heads:
    """`await heads.look("Controller", found)`: one object's turn."""

    def __init__(self, site: Site, assembler: Assembler, reconfiguring: Reconfiguring) -> None:
        self._site = site
        self._assembler = assembler
        self._reconfiguring = reconfiguring
        self.makes: Mapping[str, Make] = {"Controller": self._controller, "RestApi": self._restapi}

    async def gone(self, kind: str, key: Key) -> None:
        """It was deleted: its children go by themselves."""
        self._assembler.forget(kind, key)
        if kind == "Controller":
            self._reconfiguring.forget(key)
            await self._site.clusters.drop(key)

    async def _apply(self, kind: str, found: Written, objects: Sequence[Body]) -> None:
        try:
            applied = await self._site.applier.apply(objects, owner_of(kind, found))
        except ApplyError as error:
            raise Trouble("Refused", f"Kubernetes refuses {error}") from error
        self._site.statuses.made(kind, found, applied.created)

    # Controller

    async def _controller(self, found: Written) -> None:
        site, controller = self._site, self._assembler.checked(Controller, found)
        await self._keys(found, controller)
        view, configuration = marked(await self._assembler.view(controller))
        objects: Sequence[Body] = bundled(controller_objects(view.controller, view), view)
        if not view.restapis:
            objects = [_restarting(each, configuration) for each in objects]
        await self._apply("Controller", found, objects)
        await self._slurm(controller, view)
        if controller.spec.external:
            await site.statuses.say("Controller", found, self._external(found.key))
            return
        workload = site.watches.stateful_sets.get(names.controller(controller.metadata.name), controller.metadata.namespace)
        progress = self._reconfiguring.want(found.key, configuration, controller.status.configuration)
        standing = self._controller_standing(standing_of(workload, "slurmctld"), view, progress, found.key)
        confirmed = progress.confirmed
        if confirmed == configuration != controller.status.configuration:
            site.statuses.event("Controller", found, "ConfigurationApplied", f"all daemons run configuration {configuration}")
        await site.statuses.say("Controller", found, standing, **({"configuration": confirmed} if confirmed else {}))

    async def _keys(self, found: Written, controller: Controller) -> None:
        """Those that nobody has given; of an external cluster they have to be."""
        name, owner = controller.metadata.name, owner_of("Controller", found)
        given = {
            names.slurm_key_secret(name): (controller.spec.slurm_key_ref, names.SLURM_KEY),
            names.jwt_key_secret(name): (controller.spec.jwt_reference, names.JWT_KEY),
        }
        for secret, (reference, key) in given.items():
            if reference is not None:
                await self._site.secret_key(reference.name, reference.key or key, controller.metadata.namespace)
            elif controller.spec.external:
                raise Trouble(
                    "InvalidSpec", "an external Controller has to name its keys: spec.slurmKeyRef and spec.jwtKeyRef", lasting=True
                )
            elif await self._site.keys.ensure(owner, secret, random_key(key)):
                self._site.statuses.event("Controller", found, "KeyCreated", f"{key} was made, and is kept in Secret {secret}")
                self._site.look_later(Place(*owner.key[:1], "Controller", name), 1.0)

    async def _slurm(self, controller: Controller, view: ClusterView) -> None:
        """A client for as long as there is a RestApi to speak to."""
        site, namespace, name = self._site, controller.metadata.namespace, controller.metadata.name
        key = Key(namespace, name)
        living = [each for each in view.restapis if each.metadata.deletion_timestamp is None]
        secret, place = jwt_key(controller)
        content = await site.watches.files.content("Secret", secret, namespace)
        signing = content.bytes_of(place) if content else None
        if not living or not signing:
            await site.clusters.drop(key)
            return
        restapi = min(living, key=lambda each: (str(each.metadata.creation_timestamp), each.metadata.name))
        service = names.restapi(restapi.metadata.name)
        seen = site.watches.children["Service"].get(service, namespace)
        if seen is None:
            return  # its own turn makes it, and then it is ours again
        address = site.settings.slurm.address.format(
            service=service,
            namespace=namespace,
            port=restapi.spec.service.port or names.SLURMRESTD_PORT,
            controller=name,
            cluster_ip=seen.spec.cluster_ip,
        )
        await site.clusters.ensure(key, address, signing)

    def _external(self, key: Key) -> Standing:
        cluster = self._site.clusters.get(*key)
        if cluster is None:
            return settled("the cluster's head is elsewhere", "External")
        if not cluster.is_current:
            return under_way("SlurmNotAnswering", f"Slurm does not answer: {cluster.problem}")
        return settled("the cluster's head is elsewhere, and answers", "External")

    def _controller_standing(self, pods: Standing, view: ClusterView, progress: Progress, key: Key) -> Standing:
        if not pods["Ready"].status or pods["Progressing"].status:
            return pods
        if not view.restapis:
            return settled(
                "slurmctld runs; without a RestApi it is restarted for each new configuration, and which one it runs is not seen"
            )
        if progress.is_done:
            return settled("slurmctld runs, and all daemons run the configuration as written")
        cluster = self._site.clusters.get(*key)
        late = self._reconfiguring.wait_left(progress)
        if progress.problem.startswith("Slurm refuses"):
            return broken("ConfigurationRefused", progress.problem)
        if late <= 0:
            return broken("ConfigurationNotTaken", progress.describe())
        self._site.look_later(Place(key.namespace, "Controller", key.name), late + 1.0)
        if cluster is None or not cluster.is_current:
            return under_way("SlurmNotAnswering", "slurmctld's pod runs; Slurm does not answer through its RestApi yet")
        return under_way("Reconfiguring", progress.describe())

    # RestApi

    async def _restapi(self, found: Written) -> None:
        restapi = self._assembler.checked(RestApi, found)
        namespace = restapi.metadata.namespace
        view = await self._assembler.view(self._assembler.controller(restapi.spec.controller_ref.name, namespace))
        await self._apply("RestApi", found, restapi_objects(restapi, view))
        workload = self._site.watches.deployments.get(names.restapi(restapi.metadata.name), namespace)
        ready = workload.status.ready_replicas if workload else 0
        await self._site.statuses.say("RestApi", found, standing_of(workload, "slurmrestd"), readyReplicas=ready)


def _restarting(found: Body, configuration: str) -> Body:
    """Where nobody can ask slurmctld to reconfigure, a new configuration is a new pod."""
    if found["kind"] != "StatefulSet":
        return found
    template = found["spec"]["template"]
    annotations = {**(template["metadata"].get("annotations") or {}), "slinky.slurm.net/configuration-hash": configuration}
    changed = {**template, "metadata": {**template["metadata"], "annotations": annotations}}
    return {**found, "spec": {**found["spec"], "template": changed}}
