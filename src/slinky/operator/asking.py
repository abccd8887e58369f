"""Who is asked about a cluster: the client of its Slurm, for as long as there is a RestApi to speak to.

Comes in: a Controller, its RestApis, and the Secret with jwt.key. Goes out: a `Cluster` in `Clusters`, made anew where its address or its key is another. What must stay true: a RestApi that is being deleted and waits for
its cluster's workers is asked on, where no other is there.
"""

from contextlib import suppress

from slinky.kube import Key
from slinky.operator import names
from slinky.operator.assembling import Assembler
from slinky.operator.departing import FINALIZER
from slinky.operator.files import UnreadableError
from slinky.operator.kinds import Controller, RestApi, Written
from slinky.operator.objects.view import jwt_key
from slinky.operator.site import Site
from slinky.operator.trouble import Trouble
from slinky.slurm import ConfigurationError

__all__ = ["Asking"]


class Asking:
    def __init__(self, site: Site, assembler: Assembler) -> None:
        self._site, self._assembler = site, assembler

    async def begin(self, controller: Controller) -> Trouble | None:
        """A client for as long as there is a RestApi to speak to; the trouble where jwt.key can sign no token."""
        site, namespace, name = self._site, controller.metadata.namespace, controller.metadata.name
        key = Key(namespace, name)
        known = self._assembler.members(RestApi, controller)
        living = [each for each in known if each.metadata.deletion_timestamp is None or FINALIZER in each.metadata.finalizers]
        secret, place = jwt_key(controller)
        content = await site.watches.files.content("Secret", secret, namespace)
        signing = content.bytes_of(place) if content else None
        if not living:
            await site.clusters.drop(key)
            return None
        if not signing:
            return None  # a client that is there goes on with the key that it has
        restapi = min(living, key=_first_to_ask)
        service = names.restapi(restapi.metadata.name)
        seen = site.watches.children["Service"].get(service, namespace)
        if seen is None:
            return None  # its own turn makes it, and then it is ours again
        address = site.settings.slurm.address.format(
            service=service,
            namespace=namespace,
            port=restapi.spec.service.port or names.SLURMRESTD_PORT,
            controller=name,
            cluster_ip=seen.spec.cluster_ip,
        )
        try:
            await site.clusters.ensure(key, address, signing)
        except ConfigurationError as error:
            return Trouble(
                "KeyUnusable",
                f"the operator cannot ask Slurm with {place} of Secret {secret}: {error}. Put a key of 32 bytes or more there",
                lasting=True,
            )
        return None

    async def go_on(self, found: Written) -> None:
        """Of a Controller that is being deleted and stays for a while: Slurm is asked on about its workers."""
        with suppress(Trouble, UnreadableError):
            await self._site.watches.files.known(found.metadata.namespace)
            await self.begin(self._assembler.controller(found.metadata.name, found.metadata.namespace))

    def unasked(self, found: Written) -> str:
        """Why a Controller's Slurm cannot be asked; empty where it can."""
        cluster = self._site.clusters.get(*found.key)
        if cluster is not None:
            return "" if cluster.is_current else cluster.problem or "it has not answered lately"
        return "it has no RestApi, or the Secret with its jwt.key is gone"


def _first_to_ask(restapi: RestApi) -> tuple[bool, str, str]:
    """One that stays, then the oldest."""
    meta = restapi.metadata
    return meta.deletion_timestamp is not None, str(meta.creation_timestamp), meta.name
