"""The webhooks' certificates on a sandbox with cert-manager: who is trusted, how one is renewed, and whether anybody was refused meanwhile."""

import base64
import datetime as dt
import json
import threading

from tests.charts.site import POD, WEBHOOKS, WRONG, Site

__all__ = ["Tries", "authority_of", "bundles", "renew"]


class Tries:
    """Objects for both webhooks are tried all the while, without being kept. `refused`: what was said where the webhook was not reached, or not trusted."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._end = threading.Event()
        self.count, self.refused = 0, list[str]()

    def _try(self) -> None:
        told = f"{POD.format(name='tried', command='exit 0')}---\n{json.dumps(WRONG)}"
        while not self._end.is_set():
            done = self._site.done("kubectl", "create", "--dry-run=server", "--filename=-", told=told, seconds=60)
            self.count += 1
            if "pod/tried created" not in done.stdout or "spec.replica" not in done.stderr:
                self.refused.append(f"{done.stdout} {done.stderr}")

    def __enter__(self) -> "Tries":
        self._thread = threading.Thread(target=self._try)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=90)


def authority_of(site: Site, secret: str) -> str:
    found = site.get("secret", secret, "--namespace=slinky").get("data", {}).get("ca.crt", "")
    return base64.b64decode(found).decode()


def bundles(site: Site) -> list[str]:
    return [
        base64.b64decode(each["clientConfig"]["caBundle"]).decode()
        for name, kind in (*WEBHOOKS, ("slurm-bridge", "validatingwebhookconfiguration"))
        for each in site.get(kind, name)["webhooks"]
    ]


def renew(site: Site, certificate: str) -> None:
    """As `cmctl renew` does."""
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test", "observedGeneration": 1}
    issuing["lastTransitionTime"] = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    patch = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": issuing}])
    site.kubectl("patch", "certificate", certificate, "--namespace=slinky", "--subresource=status", "--type=json", f"--patch={patch}")
