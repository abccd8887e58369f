"""A cluster's head: what is made for Controllers, RestApis, Accountings and LoginSets, and how each of them stands.

Comes in: one object at a time, as it was written. Goes out: its children, applied, and its status. What must stay true: an object that cannot be made as it says changes nothing and says why; what is wrong with one holds up no other.
"""

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping, Sequence

from slinky.kube import Key
from slinky.operator import labels, names
from slinky.operator.applying import ApplyError, Body
from slinky.operator.asking import Asking
from slinky.operator.assembling import Assembler
from slinky.operator.children import Child, Owner
from slinky.operator.conditions import (
    READY,
    Standing,
    broken,
    is_available,
    noting,
    settled,
    under_way,
)
from slinky.operator.conf.sshd import HOST_KEYS
from slinky.operator.configuration import all_files, bundled, confirmed_config, confirmed_copy, mark_in, marked, too_large, with_files
from slinky.operator.keys import Makes, new_host_keys, random_key
from slinky.operator.kinds import Accounting, Controller, LoginSet, RestApi, Written
from slinky.operator.objects.accounting import accounting_objects
from slinky.operator.objects.controller import controller_objects
from slinky.operator.objects.loginset import login_objects
from slinky.operator.objects.monitor import unmonitored
from slinky.operator.objects.restapi import restapi_objects
from slinky.operator.objects.secrets import host_keys_secret, jwt_key_secret, slurm_key_secret
from slinky.operator.objects.view import AccountingView, ClusterView, host_keys, jwt_key, slurm_key, sssd_conf
from slinky.operator.reconfiguration import REFUSED, Progress
from slinky.operator.reconfiguring import REFUSED_SECONDS, UNSEEN_SECONDS, Reconfiguring
from slinky.operator.recording import silent_slurmdbd
from slinky.operator.relations import Place, controller_of
from slinky.operator.silence import (
    is_of_slurmrestd,
    patience_left,
    silent_head,
    silent_slurmrestd,
)
from slinky.operator.site import Site
from slinky.operator.standings import pod_trouble, seconds_to_next, standing_of
from slinky.operator.trouble import Trouble

__all__ = ["Heads", "owner_of"]

Make = Callable[[Written], Awaitable[None]]

SOON = 0.5  # seconds after a deadline when one looks whether it is over
# By kind: the daemon, the kind of its workload and the workload's name.
DAEMONS: Mapping[str, tuple[str, str, Callable[[str], str]]] = {
    "Controller": ("slurmctld", "StatefulSet", names.controller),
    "Accounting": ("slurmdbd", "StatefulSet", names.accounting),
    "RestApi": ("slurmrestd", "Deployment", names.restapi),
    "LoginSet": ("login", "Deployment", str),
}


def owner_of(kind: str, found: Written) -> Owner:
    meta = found.metadata
    return Owner(kind, meta.namespace, meta.name, meta.uid)


class Heads:
    """`await heads.look("Controller", found)`: one object's turn."""

    def __init__(self, site: Site, assembler: Assembler, reconfiguring: Reconfiguring) -> None:
        self._site = site
        self._assembler = assembler
        self._reconfiguring = reconfiguring
        self.asking = Asking(site, assembler)
        self.makes: Mapping[str, Make] = {
            "Controller": self._controller,
            "Accounting": self._accounting,
            "RestApi": self._restapi,
            "LoginSet": self._loginset,
        }

    async def gone(self, kind: str, key: Key) -> None:
        """It was deleted: its children go by themselves."""
        self._assembler.forget(kind, key)
        if kind == "Controller":
            self._reconfiguring.forget(key)
            await self._site.clusters.drop(key)

    async def _apply(self, kind: str, found: Written, objects: Sequence[Body]) -> None:
        if refused := await self._applied(kind, found, objects):
            raise Trouble("Refused", f"Kubernetes refuses {refused}") from refused

    async def _applied(self, kind: str, found: Written, objects: Sequence[Body], kept: Sequence[Child] = ()) -> ApplyError | None:
        """What was refused, if anything: the rest is done all the same."""
        try:
            applied = await self._site.applier.apply(objects, owner_of(kind, found), kept=kept)
        except ApplyError as error:
            return error
        self._site.statuses.made(kind, found, applied)
        return None

    # Controller

    async def _controller(self, found: Written) -> None:
        site, controller = self._site, self._assembler.read(Controller, found)
        unusable = await self.asking.begin(controller)  # first, so that workers are cared for whatever is wrong with the rest
        self._assembler.check(controller)
        await self._keys(controller)
        view, configuration = marked(await self._assembler.view(controller))
        if wrong := too_large(all_files(view)):
            raise Trouble("FilesTooLarge", wrong, lasting=True)
        view.need(slurm_key(controller), jwt_key(controller))
        objects: Sequence[Body] = bundled(controller_objects(view.controller, view), view)
        if not view.restapis:
            objects = [_restarting(each, configuration) for each in objects]
        name, running = controller.metadata.name, self._reconfiguring.confirmed(found.key)
        before = await self._before(found.key, configuration)
        if before is not None:
            objects = with_files(objects, name, before)
        if configuration in (running, controller.status.configuration if running is None else ""):
            objects = [*objects, confirmed_copy(objects, name)]
        refused = await self._applied(
            "Controller", found, objects, [Child("ConfigMap", Key(found.metadata.namespace, confirmed_config(name)))]
        )
        if refused is not None and Child("ConfigMap", Key(found.metadata.namespace, names.config(name))) in refused.refused:
            raise Trouble("Refused", f"Kubernetes refuses {refused}") from refused
        if unusable is not None and refused is None:
            raise unusable
        if controller.spec.external and refused is None:
            await site.statuses.say("Controller", found, self._external(found.key))
            return
        if controller.spec.external:
            raise Trouble("Refused", f"Kubernetes refuses {refused}") from refused
        pods = self._pods("Controller", found)
        wanted = configuration if before is None else mark_in(before["slurm.conf"])
        status = controller.status
        progress = self._reconfiguring.want(found.key, wanted, status.configuration, status.configured_since)
        standing = self._controller_standing(pods, view, progress, found.key)
        if refused is not None:
            raise Trouble("Refused", f"Kubernetes refuses {refused}") from refused
        if self._reconfiguring.is_unseen(progress) and _stands_still(pods):
            site.look_later(Place(found.metadata.namespace, "Controller", name), UNSEEN_SECONDS)
            return  # what stands there was true a moment ago
        if before is not None:
            if is_available(standing):
                standing = broken("ConfigurationRefused", REFUSED, available=True)
            site.look_later(Place(found.metadata.namespace, "Controller", name), REFUSED_SECONDS + 1.0)
        standing = noting(standing, unmonitored(view))
        confirmed = progress.confirmed
        if confirmed == wanted != controller.status.configuration:
            site.statuses.event("Controller", found, "ConfigurationApplied", f"slurmctld and all slurmds run configuration {wanted}")
        await site.statuses.say("Controller", found, standing, configuration=confirmed, configuredSince=progress.oldest)

    async def _before(self, key: Key, configuration: str) -> Mapping[str, str] | None:
        """The files to go back to, where slurmctld refuses this configuration: it would hand them out to workers all the same, and could not begin anew itself."""
        if not self._reconfiguring.is_refused(key, configuration):
            return None
        held = await self._site.watches.files.content("ConfigMap", confirmed_config(key.name), key.namespace)
        if held is None or self._reconfiguring.is_refused(key, mark_in(held.data.get("slurm.conf"))):
            return None
        return held.data

    async def _keys(self, controller: Controller) -> None:
        """Those that nobody has given; of an external cluster they have to be."""
        spec, meta = controller.spec, controller.metadata
        for reference, key in ((spec.slurm_key_ref, names.SLURM_KEY), (spec.jwt_reference, names.JWT_KEY)):
            if reference is not None:
                await self._site.secret_key(reference.name, reference.key or key, meta.namespace)
        if spec.slurm_key_ref is None and not spec.external:
            await self._key(controller, names.slurm_key_secret(meta.name), lambda: slurm_key_secret(controller, random_key()))
        if spec.jwt_reference is None and not spec.external:
            await self._key(controller, names.jwt_key_secret(meta.name), lambda: jwt_key_secret(controller, random_key()))

    async def _key(self, controller: Controller, secret: str, makes: Makes) -> None:
        """Made once. A cluster that runs with a key that is gone is not given another: its daemons could not speak with each other any more, and jobs would be lost."""
        meta, watches = controller.metadata, self._site.watches
        runs = watches.stateful_sets.get(names.controller(meta.name), meta.namespace) is not None
        if runs and watches.files.get("Secret", Key(meta.namespace, secret)) is None:
            raise Trouble(
                "KeyLost",
                f"Secret {secret} is gone, and the cluster runs with the key that was in it: put it back from a copy (the daemons' pods have it in {names.ETC}); or, to begin with another, delete StatefulSet {names.controller(meta.name)} and all workers first",
                lasting=True,
            )
        await self._site.keys.ensure(meta.namespace, secret, makes)

    def _external(self, key: Key) -> Standing:
        cluster = self._site.clusters.get(*key)
        if cluster is None:
            return settled("the cluster's head is elsewhere", "External")
        left = patience_left(cluster, self._site.settings.slurm)
        if left is None:
            return settled("the cluster's head is elsewhere, and answers", "Answers")
        said = f"the cluster's head is elsewhere, and does not answer: {cluster.error}"
        if left <= 0:
            return broken("SlurmNotAnswering", said)
        self._site.look_later(Place(key.namespace, "Controller", key.name), left + SOON)
        return under_way("SlurmNotAnswering", said, available=cluster.has_answered)

    def _controller_standing(self, pods: Standing, view: ClusterView, progress: Progress, key: Key) -> Standing:
        if not _stands_still(pods):
            return pods
        if (silent := self._silent(key)) is not None:
            return silent
        if not view.restapis:
            return settled(
                "slurmctld runs; without a RestApi it is restarted for each new configuration, and which one it runs is not seen"
            )
        if progress.done:
            return settled("slurmctld and all slurmds run the configuration as written")
        cluster = self._site.clusters.get(*key)
        late = self._reconfiguring.wait_left(progress)
        if progress.refused:
            return broken("ConfigurationRefused", progress.problem, available=True)
        if late <= 0:
            is_there = cluster is not None and not cluster.problem
            return broken("ConfigurationNotTaken", progress.describe(), available=is_there)
        self._site.look_later(Place(key.namespace, "Controller", key.name), late + 1.0)
        if cluster is None or not cluster.is_current:
            return under_way("SlurmNotAnswering", "slurmctld's pod runs; Slurm does not answer through its RestApi yet")
        return under_way("Reconfiguring", progress.describe(), available=True)

    def _silent(self, key: Key) -> Standing | None:
        """Of a Controller whose pods are as they are to be, and whose Slurm does not answer."""
        site, cluster = self._site, self._site.clusters.get(*key)
        left = patience_left(cluster, site.settings.slurm)
        if cluster is None or left is None:
            return None
        if left > 0:
            site.look_later(Place(key.namespace, "Controller", key.name), left + SOON)
            return None
        known = site.watches.kinds["RestApi"].list(key.namespace)
        of_it = sorted(one.metadata.name for one in known if controller_of(one) == key.name)
        if not of_it:
            return None
        return silent_head(
            cluster,
            key.namespace,
            key.name,
            of_it,
            [name for name in of_it if self._has_slurmrestd(Key(key.namespace, name))],
        )

    def _has_slurmrestd(self, restapi: Key) -> bool:
        found = self._site.watches.deployments.get(names.restapi(restapi.name), restapi.namespace)
        return found is not None and found.status.ready_replicas > 0

    # RestApi

    async def _restapi(self, found: Written) -> None:
        restapi = self._assembler.checked(RestApi, found)
        namespace = restapi.metadata.namespace
        view = await self._assembler.view(self._assembler.controller(restapi.spec.controller_ref.name, namespace))
        await self._apply("RestApi", found, restapi_objects(restapi, view))
        workload = self._site.watches.deployments.get(names.restapi(restapi.metadata.name), namespace)
        ready = workload.status.ready_replicas if workload else 0
        standing = self._pods("RestApi", found)
        cluster = self._site.clusters.get(namespace, restapi.spec.controller_ref.name)
        if cluster is not None and _stands_still(standing) and is_of_slurmrestd(cluster.error):
            left = patience_left(cluster, self._site.settings.slurm)
            if left is not None and left > 0:
                self._site.look_later(Place(namespace, "RestApi", found.key.name), left + SOON)
            elif left is not None and ready:
                standing = silent_slurmrestd(cluster, namespace, found.key.name)
        await self._site.statuses.say("RestApi", found, standing, readyReplicas=ready)

    # Accounting

    async def _accounting(self, found: Written) -> None:
        site, accounting = self._site, self._assembler.checked(Accounting, found)
        if accounting.spec.external:
            await self._apply("Accounting", found, [])
            await site.statuses.say("Accounting", found, settled("slurmdbd is elsewhere", "External"))
            return
        view = await self._assembler.accounting_view(accounting)
        storage, namespace = accounting.spec.storage_config, accounting.metadata.namespace
        password = ""
        if storage is not None and storage.password_key_ref is not None:
            content = await site.secret_key(storage.password_key_ref.name, storage.password_key_ref.key or "password", namespace)
            password = content.decode(errors="replace").rstrip("\n")
        await self._apply("Accounting", found, accounting_objects(accounting, view, password))
        if view.slurm_key is None or view.jwt_key is None:
            raise Trouble("NoKey", "it names no keys, and no Controller refers to it whose keys it could have", waiting=True)
        await self._fitting_keys(view, view.slurm_key)
        standing = self._pods("Accounting", found)
        if _stands_still(standing):
            standing = self._unrecorded(view, found.key) or standing
        await site.statuses.say("Accounting", found, standing)

    def _unrecorded(self, view: AccountingView, key: Key) -> Standing | None:
        """Where one of its clusters gets no answer of slurmdbd's."""
        for controller in view.controllers:
            cluster = self._site.clusters.get(key.namespace, controller.metadata.name)
            if cluster is not None and cluster.recording.problem:
                return silent_slurmdbd(cluster.recording, key.namespace, key.name)
        return None

    async def _fitting_keys(self, view: AccountingView, own: tuple[str, str]) -> None:
        """slurmdbd has one slurm.key. Raises Trouble where a Controller that it is to record has another."""
        namespace = view.accounting.metadata.namespace
        held = await self._site.secret_key(*own, namespace)
        for controller in view.controllers:
            theirs = slurm_key(controller)
            content = await self._site.watches.files.content("Secret", theirs[0], namespace) if theirs != own else None
            if content is not None and content.bytes_of(theirs[1]) != held:  # one that is not there yet is looked at when it comes
                name = controller.metadata.name
                raise Trouble(
                    "KeysDiffer",
                    f"slurmdbd has slurm.key of Secret {own[0]}, and Controller {name} that of Secret {theirs[0]}, so its jobs cannot be recorded here: make Controller {name} with slurmKeyRef {own[0]}, or give it an Accounting of its own",
                    lasting=True,
                )

    # LoginSet

    async def _loginset(self, found: Written) -> None:
        site, loginset = self._site, self._assembler.checked(LoginSet, found)
        meta, runs = loginset.metadata, site.watches.deployments.get(loginset.metadata.name, loginset.metadata.namespace)
        controller = self._assembler.controller(loginset.spec.controller_ref.name, meta.namespace)
        await self._host_keys(loginset, runs=runs is not None)
        view = await self._assembler.view(controller)
        view.need(host_keys(loginset), *sssd_conf(loginset.spec.sssd_conf_ref))
        key = slurm_key(controller)
        if runs is None and controller.spec.slurm_key_ref is None and not view.digest(key[0]):
            raise Trouble("NoKey", f"Secret {key[0]} with slurm.key is not there yet", waiting=True)
        view.need(key)
        await self._apply("LoginSet", found, login_objects(loginset, view))
        workload = site.watches.deployments.get(meta.name, meta.namespace)
        fields = {
            "replicas": workload.status.replicas if workload else 0,
            "readyReplicas": workload.status.ready_replicas if workload else 0,
            "selector": ",".join(f"{key}={value}" for key, value in labels.login_labels(loginset).items()),
        }
        await site.statuses.say("LoginSet", found, self._pods("LoginSet", found), **fields)

    async def _host_keys(self, loginset: LoginSet, *, runs: bool) -> None:
        """Made once: with others, every known_hosts file would call the logins false, and the pods would be replaced under their users."""
        meta, secret = loginset.metadata, names.host_keys(loginset.metadata.name)
        if runs and self._site.watches.files.get("Secret", Key(meta.namespace, secret)) is None:
            raise Trouble(
                "KeyLost",
                f"Secret {secret} with the logins' host keys is gone, and login pods run with them: put it back from a copy "
                f"(the pods have the keys in {HOST_KEYS}); or, to begin with others, delete Deployment {meta.name} first",
                lasting=True,
            )
        await self._site.keys.ensure(meta.namespace, secret, lambda: host_keys_secret(loginset, new_host_keys()))

    # Pods

    def stands(self, kind: str, found: Written) -> Standing | None:
        """Of its daemons alone, whatever else is wrong; None where it has none here."""
        if kind not in DAEMONS or found.spec.get("external") is True:
            return None
        pods = self._pods(kind, found)
        if kind == "Controller" and _stands_still(pods):
            return self._silent(found.key) or pods
        return pods

    def _pods(self, kind: str, found: Written) -> Standing:
        site, key, now = self._site, found.key, dt.datetime.now(dt.UTC)
        daemon, workloads, name_of = DAEMONS[kind]
        child = Child(workloads, Key(key.namespace, name_of(key.name)))
        pods = site.watches.pods_of(daemon, key.namespace, key.name)
        standing = standing_of(
            site.watches.children[workloads].by_key(child.key),
            daemon,
            pod_trouble(pods, site.watches.nodes.get, now),
            is_seen=site.applier.is_seen(found.metadata.uid, child),
        )
        wait = None if _stands_still(standing) else seconds_to_next(pods, now)
        if wait is not None:
            site.look_later(Place(key.namespace, kind, key.name), wait + SOON)
        return standing


def _stands_still(pods: Standing) -> bool:
    return pods[READY].status


def _restarting(found: Body, configuration: str) -> Body:
    """Where nobody can ask slurmctld to reconfigure, a new configuration is a new pod."""
    if found["kind"] != "StatefulSet":
        return found
    template = found["spec"]["template"]
    annotations = {**(template["metadata"].get("annotations") or {}), "slinky.slurm.net/configuration-hash": configuration}
    changed = {**template, "metadata": {**template["metadata"], "annotations": annotations}}
    return {**found, "spec": {**found["spec"], "template": changed}}
