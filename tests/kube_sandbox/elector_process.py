"""An elector as a process of its own, to be stopped by signals: prints the moment and whether it leads, every few milliseconds.

Run as `python -m tests.kube_sandbox.elector_process KUBECONFIG NAMESPACE IDENTITY`.
"""

import asyncio
import sys

from slinky.kube import from_kubeconfig
from slinky.kube.leader import LeaderElector
from slinky.kube.leases import ElectionTimes, lease_clock

TIMES = ElectionTimes(lease=3, renew=2, retry=0.4)


async def main(kubeconfig: str, namespace: str, identity: str) -> None:
    elector = LeaderElector(from_kubeconfig(kubeconfig), "election", namespace, identity, times=TIMES)
    elector.start()
    while True:
        print(lease_clock(), int(elector.is_leader), flush=True)
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
