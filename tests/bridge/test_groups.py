"""What is told of sets: the keys that one can have, and nothing as long as a user likes. The rest is tried on a real server, in tests/bridge_sandbox."""

from typing import Any

import pytest

from slinky.bridge.groupapis import Source
from slinky.bridge.groups import PodGroups
from slinky.bridge.leaderworkersets import LWS_GROUP
from slinky.bridge.workload import WorkloadKey
from slinky.kube.cache import Change, ChangeType
from tests.bridge.test_leaderworkersets import lws

SETS = Source("LeaderWorkerSet", LWS_GROUP, "v1", "leaderworkersets")


@pytest.mark.parametrize("replicas", [2, 2_000_000_000])
def test_of_a_set_that_changed_one_key_is_told_whatever_its_size(replicas: int) -> None:
    """The parts of it that are known are found where they are known: not each that it could have is asked about."""
    client: Any = None
    touched: list[WorkloadKey] = []
    looked: list[WorkloadKey] = []
    groups = PodGroups(client, touched.append, look=looked.append)
    found = lws(replicas=replicas)
    groups._changed(SETS, Change(ChangeType.ADDED, found.key, None, found))
    assert touched == looked == [WorkloadKey("LeaderWorkerSet", "lab", "serve")]
