"""Whom a record in Slurm without a pod concerns."""

from slinky.kube import Key
from slinky.operator.nodesets.waking import owners_of
from tests.operator.nodesets.scene import in_slurm

INFO = '{"namespace":"hpc","podName":"workers-0","node":"k0","nodeSetName":"workers","nodeSetUID":"nodeset"}'


def test_a_record_wakes_the_nodeset_that_it_names_also_when_it_goes_and_no_other() -> None:
    ours, other = in_slurm("workers-0", comment=INFO), in_slurm("elsewhere", comment="rack 7")
    assert list(owners_of(None, ours)) == [Key("hpc", "workers")]
    assert list(owners_of(ours, None)) == [Key("hpc", "workers")]
    assert list(owners_of(ours, ours)) == [Key("hpc", "workers")]
    assert list(owners_of(other, None)) == []
