"""A cluster in one moment, put together from the caches: the `ClusterView` that objects are made from.

Comes in: the objects as they were written, and the ConfigMaps and Secrets that they name. Goes out: a view, or the trouble that is in the way. What must stay true: what cannot be read stands in the view as it was when it could; where
that is not known and the cluster exists already, no view is given: a partition whose NodeSet has a typing mistake must not vanish from under its jobs.
"""

import hmac
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import msgspec

from slinky.kube import Key
from slinky.operator import names
from slinky.operator.absent import not_there, without_key
from slinky.operator.children import digest
from slinky.operator.conf.slurm import WITHOUT_CGROUPS
from slinky.operator.conf.text import pairs_of, parse
from slinky.operator.kinds import Accounting, Controller, KeyReference, LoginSet, NodeSet, RestApi, Token, Written
from slinky.operator.kinds.reading import Problem, read_as
from slinky.operator.objects.controller import referenced_files
from slinky.operator.objects.privilege import is_privileged
from slinky.operator.objects.view import AccountingView, ClusterView, host_keys, jwt_key, slurm_key, sssd_conf
from slinky.operator.relations import accounting_of, controller_of
from slinky.operator.settings import ImageSettings, Settings
from slinky.operator.trouble import Trouble
from slinky.operator.validation import Neighbours, Object, file_problems, problems
from slinky.operator.watching import Watches

__all__ = ["Assembler", "with_image"]

log = logging.getLogger(__name__)

T = TypeVar("T", Controller, Accounting, RestApi, NodeSet, LoginSet, Token)


CONTAINERS = {"Controller": "slurmctld", "Accounting": "slurmdbd", "RestApi": "slurmrestd", "NodeSet": "slurmd", "LoginSet": "login"}


def with_image(found: T, images: ImageSettings) -> T:
    """With the settings' image where it names none of its own."""
    container = CONTAINERS.get(type(found).__name__)
    if container is None:
        return found
    said: dict[str, Any] = getattr(found.spec, container)
    if said.get("image"):
        return found
    policy = {"imagePullPolicy": images.pull_policy} if images.pull_policy else {}
    spec = msgspec.structs.replace(found.spec, **{container: {**policy, **said, "image": getattr(images, container)}})
    return msgspec.structs.replace(found, spec=spec)


class Assembler:
    def __init__(self, watches: Watches, settings: Settings, cluster_domain: str) -> None:
        self._watches = watches
        self._settings = settings
        self._domain = cluster_domain
        self._good: dict[tuple[str, Key], Any] = {}  # the last that could be read, of each that is there
        self._read: dict[tuple[str, Key], tuple[str, Any]] = {}  # the last that was read, by its version

    def read(self, type_: type[T], found: Written) -> T:
        """Raises Trouble where it cannot be read."""
        result = self._reading(type_, found)
        if isinstance(result, list):
            raise Trouble(result[0].reason, "; ".join(map(str, result)), lasting=True)
        return result

    def _reading(self, type_: type[T], found: Written) -> T | list[Problem]:
        place, version = (type_.__name__, found.key), f"{found.metadata.uid} {found.metadata.resource_version}"
        held = self._read.get(place)
        if held is not None and held[0] == version:
            known: T | list[Problem] = held[1]
            return known
        result = read_as(type_, found)
        if not isinstance(result, list):
            result = with_image(result, self._settings.images)
        self._read[place] = (version, result)
        if not isinstance(result, list):
            self._good[place] = result
        return result

    def checked(self, type_: type[T], found: Written) -> T:
        """Read, and judged as the webhook would: there may be none. Raises Trouble."""
        result = self.read(type_, found)
        self.check(result)
        return result

    def check(self, found: Object) -> None:
        """Raises Trouble."""
        if wrong := problems(found, self._settings, self.neighbours(found.metadata.namespace)):
            raise Trouble(wrong[0].reason, "; ".join(map(str, wrong)), lasting=True)

    def neighbours(self, namespace: str) -> Neighbours:
        return Neighbours(self._all(Controller, namespace), self._all(NodeSet, namespace), self._all(LoginSet, namespace))

    def _all(self, type_: type[T], namespace: str) -> list[T]:
        found = self._watches.kinds[type_.__name__].list(namespace)
        return [known for each in found if (known := self._known(type_, each)) is not None]

    def forget(self, kind: str, key: Key) -> None:
        self._good.pop((kind, key), None)
        self._read.pop((kind, key), None)

    def controller(self, name: str, namespace: str) -> Controller:
        """That a RestApi, LoginSet or Accounting belongs to. Raises Trouble."""
        found = self._watches.kinds["Controller"].get(name, namespace)
        if found is None:
            raise Trouble("ControllerNotFound", f"there is no Controller {name} in namespace {namespace}", lasting=True)
        known = self._known(Controller, found)
        if known is None:
            raise Trouble("ControllerUnreadable", f"Controller {name} cannot be read: see its status", lasting=True)
        return known

    def controllers_of(self, accounting: str, namespace: str) -> list[Controller]:
        """Those whose jobs it records."""
        found = [each for each in self._watches.kinds["Controller"].list(namespace) if accounting_of(each) == accounting]
        return [
            known for each in sorted(found, key=lambda each: each.metadata.name) if (known := self._known(Controller, each)) is not None
        ]

    async def view(self, controller: Controller) -> ClusterView:
        """What is known of Secrets stands in the view, and what is not: see `ClusterView.need`. Raises Trouble where a file is not there."""
        namespace = controller.metadata.namespace
        accounting = self._accounting(controller)
        nodesets, logins = self.members(NodeSet, controller), self.members(LoginSet, controller)
        secrets = self._secrets(controller, nodesets, logins)
        digests = await self._digests(namespace, secrets, _with_passwords(controller, nodesets, logins), slurm_key(controller))
        return ClusterView(
            controller=controller,
            accounting=accounting,
            nodesets=nodesets,
            restapis=self.members(RestApi, controller),
            loginsets=logins,
            files=await self._files(controller),
            digests=digests.shown,
            plain_digests=digests.plain,
            unread=digests.unread,
            runs_without_cgroups=await self._runs_without_cgroups(controller, nodesets),
            cluster_domain=self._domain,
            network_policies=self._settings.network_policies,
            service_monitors="ServiceMonitor" in self._watches.children,
        )

    async def _runs_without_cgroups(self, controller: Controller, nodesets: Iterable[NodeSet]) -> bool | None:
        """As its configuration says now; asked where NodeSets differ, which must not change it."""
        if len({is_privileged(nodeset) for nodeset in nodesets}) < 2:
            return None
        meta = controller.metadata
        held = await self._watches.files.content("ConfigMap", names.config(meta.name), meta.namespace)
        if held is None:
            return None
        said = pairs_of(parse(held.data.get("slurm.conf", "")))
        types = [pair.value.lower() for pair in said if pair.key.lower() == "proctracktype"]
        return bool(types) and types[-1] == WITHOUT_CGROUPS

    async def worker_view(self, controller: Controller) -> ClusterView:
        """What workers are made from, which no file of the Controller's is part of: slurmctld hands out the configuration, and a script that is gone keeps no worker from being made. Raises Trouble."""
        namespace = controller.metadata.namespace
        nodesets = self.members(NodeSet, controller)
        secrets = self._secrets(controller, nodesets, ())
        digests = await self._digests(namespace, secrets, _with_passwords(controller, nodesets, ()), slurm_key(controller))
        return ClusterView(
            controller=controller,
            nodesets=nodesets,
            digests=digests.shown,
            plain_digests=digests.plain,
            unread=digests.unread,
            cluster_domain=self._domain,
        )

    async def accounting_view(self, accounting: Accounting) -> AccountingView:
        """Raises Trouble where a key is not there."""
        name, namespace = accounting.metadata.name, accounting.metadata.namespace
        plain = AccountingView(
            accounting=accounting, controllers=tuple(self.controllers_of(name, namespace)), network_policies=self._settings.network_policies
        )
        keys = {key for key in (plain.slurm_key, plain.jwt_key) if key is not None}
        certificates: set[tuple[str, str]] = set()
        tls = accounting.spec.storage_config.tls if accounting.spec.storage_config else None
        if tls is not None:
            references = (tls.ca_ref, tls.certificate_ref, tls.key_ref)
            certificates = {(reference.name, reference.key) for reference in references if reference is not None}
        jwks, storage = accounting.spec.jwks_key_ref, accounting.spec.storage_config
        password = storage.password_key_ref if storage else None
        # The certificates may stand in one Secret with the password.
        guessable = {password.name} - {name for name, _ in keys} if password else set()
        digests = await self._digests(namespace, keys | certificates, guessable, plain.slurm_key)
        for trouble in digests.unread.values():
            raise trouble
        return replace(
            plain,
            digests=digests.shown,
            files={jwks.name: await self._file(jwks.name, namespace)} if jwks else {},
            password_mark=await self._password_mark(plain.slurm_key, password, namespace),
        )

    async def _password_mark(self, slurm_key: tuple[str, str] | None, password: KeyReference | None, namespace: str) -> str:
        """The same while the password is, also in a Secret that was deleted and made again. Keyed with slurm.key: whoever sees the pods and has no key of the cluster can try no words against it. Raises Trouble."""
        if slurm_key is None or password is None:
            return ""
        contents: list[bytes] = []
        for name, key in (slurm_key, (password.name, password.key or "password")):
            content = await self._watches.files.content("Secret", name, namespace)
            if content is None:
                raise not_there("Secret", name, namespace)
            contents.append(content.bytes_of(key) or b"")
        return hmac.new(contents[0], contents[1], "sha256").hexdigest()[:16]

    async def _digests(
        self,
        namespace: str,
        secrets: Iterable[tuple[str, str]],
        guessable: Iterable[str] = (),
        key: tuple[str, str] | None = None,
    ) -> "_Digests":
        """Of the content of each Secret that is named with a key in it.

        Pods show digests, so words could be tried against that of a password. Those of `guessable` Secrets are
        keyed by slurm.key (`key`: its Secret and its name there), which those who may read pods do not know;
        without it there are none.
        """
        found = _Digests({}, {}, {})
        keyed = set(guessable)
        for name, entry in sorted(set(secrets)):
            try:
                content = await self._watches.files.content("Secret", name, namespace)
            except Trouble as trouble:
                found.unread[name, entry] = trouble
                continue
            if content is None:
                found.unread[name, entry] = not_there("Secret", name, namespace)
            elif entry and not content.data.get(entry):
                found.unread[name, entry] = without_key("Secret", name, entry)
            elif name not in keyed:
                found.shown[name] = digest(dict(content.data))[:16]
            else:
                plain = digest(dict(content.data))
                found.plain[name] = plain[:16]
                with suppress(Trouble):  # of slurm.key, which is in `unread` itself
                    if secret := await self._content(key, namespace):
                        found.shown[name] = hmac.new(secret, plain.encode(), "sha256").hexdigest()[:16]
        return found

    async def _content(self, key: tuple[str, str] | None, namespace: str) -> bytes:
        """Of a key in a Secret; empty where it is not there."""
        content = await self._watches.files.content("Secret", key[0], namespace) if key else None
        return (content.bytes_of(key[1]) if content and key else None) or b""

    async def _files(self, controller: Controller) -> dict[str, Mapping[str, str]]:
        """Judged at each look: a ConfigMap can be changed without its Controller, and then no webhook sees it."""
        files = {each: await self._file(each, controller.metadata.namespace) for each in referenced_files(controller)}
        if wrong := list(file_problems(controller, {name: sorted(held) for name, held in files.items()})):
            raise Trouble(wrong[0].reason, "; ".join(map(str, wrong)), lasting=True)
        return files

    async def _file(self, name: str, namespace: str) -> Mapping[str, str]:
        found = await self._watches.files.content("ConfigMap", name, namespace)
        if found is None:
            raise not_there("ConfigMap", name, namespace)
        if found.binary_data:
            raise Trouble(
                "BinaryFile",
                f"ConfigMap {name} has binary data ({', '.join(sorted(found.binary_data))}), and Slurm hands on text only:"
                " put programs into the daemons' images or into volumes of their pods, and name them by their paths in extraConf",
                lasting=True,
            )
        return found.data

    def _accounting(self, controller: Controller) -> Accounting | None:
        reference = controller.spec.accounting_ref
        if reference is None or not reference.name:
            return None
        found = self._watches.kinds["Accounting"].get(reference.name, controller.metadata.namespace)
        if found is None:
            raise Trouble("AccountingNotFound", f"there is no Accounting {reference.name} in this namespace", lasting=True)
        known = self._known(Accounting, found)
        if known is None:
            raise Trouble("AccountingUnreadable", f"Accounting {reference.name} cannot be read: see its status", lasting=True)
        return known

    def members(self, type_: type[T], controller: Controller) -> tuple[T, ...]:
        """Those that belong to a Controller. Raises Trouble where a NodeSet cannot be read, and never could."""
        kind, namespace = type_.__name__, controller.metadata.namespace
        members: list[T] = []
        for found in sorted(self._watches.kinds[kind].list(namespace), key=lambda each: each.metadata.name):
            if controller_of(found) != controller.metadata.name:
                continue
            known = self._known(type_, found)
            if known is not None:
                members.append(known)
            elif kind == "NodeSet" and self._exists(controller):
                raise Trouble(
                    "NodeSetUnreadable",
                    f"NodeSet {found.metadata.name} cannot be read (see its status), so the configuration stays as it is until it can be",
                    lasting=True,
                )
        return tuple(members)

    def _exists(self, controller: Controller) -> bool:
        """Whether the cluster has a configuration already."""
        return self._watches.files.get("ConfigMap", Key(controller.metadata.namespace, names.config(controller.metadata.name))) is not None

    def _known(self, type_: type[T], found: Written) -> T | None:
        """As it is, or as it was when it could be read."""
        result = self._reading(type_, found)
        if not isinstance(result, list):
            return result
        held: T | None = self._good.get((type_.__name__, found.key))
        if held is not None and held.metadata.uid != found.metadata.uid:
            return None  # another of that name was there before
        return None if held is None else msgspec.structs.replace(held, metadata=found.metadata)

    @staticmethod
    def _secrets(controller: Controller, nodesets: Iterable[NodeSet], logins: Iterable[LoginSet]) -> set[tuple[str, str]]:
        """That daemons of the cluster read and show a digest of: Secrets, each with the key in it."""
        logins = list(logins)
        named = [each.spec.ssh.sssd_conf_ref for each in nodesets] + [each.spec.sssd_conf_ref for each in logins]
        found = {slurm_key(controller), jwt_key(controller), *map(host_keys, logins)}
        return found | {place for reference in named for place in sssd_conf(reference)}


class _Digests(NamedTuple):
    """`shown`: what pods show, by the Secret's name. `plain`: of Secrets with a password, what earlier operators
    showed. `unread`: Secrets and keys in them of which nothing is known, and why."""

    shown: dict[str, str]
    plain: dict[str, str]
    unread: dict[tuple[str, str], Trouble]


def _with_passwords(controller: Controller, nodesets: Iterable[NodeSet], logins: Iterable[LoginSet]) -> set[str]:
    """The Secrets with an sssd.conf, in which a password for LDAP may stand, and without a key of the cluster."""
    logins = list(logins)
    references = [each.spec.ssh.sssd_conf_ref for each in nodesets] + [each.spec.sssd_conf_ref for each in logins]
    keys = {slurm_key(controller)[0], jwt_key(controller)[0], *(host_keys(login)[0] for login in logins)}
    return {reference.name for reference in references if reference is not None and reference.name} - keys
