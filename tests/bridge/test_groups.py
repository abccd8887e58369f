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


def test_of_a_set_of_too_many_pods_its_own_key_is_told_and_why_they_wait(caplog: pytest.LogCaptureFixture) -> None:
    client: Any = None
    touched: list[WorkloadKey] = []
    looked: list[WorkloadKey] = []
    groups = PodGroups(client, touched.append, look=looked.append)
    small, large = lws(), lws(replicas=2_000_000_000)
    groups._changed(SETS, Change(ChangeType.ADDED, small.key, None, small))
    assert [key.name for key in looked] == ["serve/0", "serve/1"]
    assert not caplog.records
    looked.clear()
    groups._changed(SETS, Change(ChangeType.ADDED, large.key, None, large))
    assert looked == []
    assert touched == [WorkloadKey("LeaderWorkerSet", "lab", "serve")] * 2
    assert "LeaderWorkerSet lab/serve: it asks for 6,000,000,000 pods" in caplog.text
