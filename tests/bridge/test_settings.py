"""The configuration file: the original's is understood, ours is checked, and a mistake is named."""

from pathlib import Path

import pytest

from slinky.bridge.settings import NodeSettings, Settings, SettingsError
from slinky.bridge.settings_file import load_settings
from slinky.cli.bridge_options import Site

ORIGINAL = """\
schedulerName: slurm-bridge-scheduler
slurmRestApi: http://slurm-restapi.slurm:6820
managedNamespaces: [slurm-bridge, lab]
managedNamespaceSelector:
  matchLabels: {team: hpc}
  matchExpressions: [{key: stage, operator: NotIn, values: [test]}]
mcsLabel: kubernetes
partition: slurm-bridge
"""


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_settings(path)


def test_the_originals_file_is_understood(tmp_path: Path) -> None:
    settings = load(tmp_path, ORIGINAL)
    assert settings.slurm_rest_api == "http://slurm-restapi.slurm:6820"
    assert settings.manages("anything", {"team": "hpc"})
    assert not settings.manages("anything", {"team": "hpc", "stage": "test"})
    assert not settings.manages("lab", {}), "the selector wins over the list"


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Settings()
    assert not Settings().manages("default", {})
    assert Settings(managed_namespaces=["lab"]).manages("lab", {})


def test_the_bridges_own_namespace_and_slurms_are_not_managed_whatever_their_labels_say(tmp_path: Path) -> None:
    settings = load(tmp_path, "{namespace: bridge, managedNamespaceSelector: {}, slurm: {namespaces: [hpc, hpc-db]}}")
    assert settings.manages("anything", {})
    assert not [name for name in ("kube-system", "bridge", "hpc", "hpc-db") if settings.manages(name, {})]


def test_the_namespace_that_the_bridge_finds_itself_in_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("managedNamespaces: [slinky]")
    with pytest.raises(SettingsError, match="managedNamespaces has slinky, which is the bridge's own"):
        Site(path, None).settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("partitions: x", "partitions is not a setting"),
        ("slurm: {tokenfile: x}", "slurm.tokenfile is not a setting"),
        ("windows: {total: many}", "windows.total: Expected `int`, got `str`"),
        ("windows: {total: 0}", "windows.namespace and windows.total must be 1 or more"),
        ("defaultCpus: 0", "defaultCpus is 0; it must be 1 or more"),
        ("schedulerName: default-scheduler", "choose a name of the bridge's own"),
        ("partition: ''", "partition is empty"),
        ("admission: {certificateFile: x}", "admission.certificateFile and admission.keyFile go together"),
        ("admission: {url: 'http://x'}", "admission.url is 'http://x'; the API server calls https only"),
        ("nodes: {featureLabels: {zone: 'a|b'}}", "nodes.featureLabels.zone is 'a|b'; it must be what a feature"),
        ("nodes: {featureLabels: {a: z, b: z}}", "nodes.featureLabels.a is 'z', and so is another's"),
        ("nodes: {maxRenewing: some}", "nodes.maxRenewing is 'some'; it must be a number, or a share such as 5%"),
        ("nodes: {topologyLabels: {rack: ''}}", "nodes.topologyLabels.rack is ''; it must be the name of a topology"),
        ("nodes: {flapChanges: 1}", "nodes.flapChanges is 1; it must be 2 or more"),
        ("nodes: {notReadySeconds: -1}", "nodes.notReadySeconds is -1; it must be 0 or more"),
        ("nodes: {taint: PreferNoSchedule}", "nodes.taint: Invalid enum value 'PreferNoSchedule'"),
        ("leader: {seconds: 1}", "leader.seconds is 1; it must be 3 or more"),
        ("gres: {cpu: gpu}", "gres.cpu: Slurm counts cpu by itself"),
        ("gres: {x/y: 'gpu:8'}", "gres.x/y is 'gpu:8'; it must be a GRES as Slurm names it"),
        ("gres: {x/y: 'gpu:a:b'}", "gres.x/y is 'gpu:a:b'"),
        ("gres: {x/y: shard}", "give shared devices a GRES name of their own"),
        ("policy: {default: {fromLabels: [priority]}}", "policy.default.fromLabels has 'priority'; a label can give user, group, account"),
        ("policy: {rules: [{account: x}]}", "policy.rules[0] is for no namespace; name some in namespaces, or give a selector"),
        ("policy: {rules: [{namespaces: [x], acount: y}]}", "policy.rules[0].acount is not a setting"),
        ("policy: {default: {user: alice}}", "policy.default.user is 'alice' and no group is named: Slurm would take root's"),
        ("policy: {default: {window: 0}}", "policy.default.window is 0; it must be 1 or more"),
        ("priorityClasses: [{name: x}]", "priorityClasses[0] must have one of priority, nice and qos"),
        ("priorityClasses: [{name: x, nice: 1, qos: y}]", "priorityClasses[0] must have one of priority, nice and qos"),
        (
            "priorityClasses: [{name: x, nice: 1}, {name: x, nice: 2}]",
            "priorityClasses[1].name is 'x'; it must be that of a PriorityClass, and each",
        ),
        (
            "managedNamespaces: [lab, slurm]",
            "managedNamespaces has slurm, which is Slurm's own (slurm.namespaces) and can never be managed",
        ),
        ("{managedNamespaces: [hpc], slurm: {namespaces: [hpc]}}", "managedNamespaces has hpc, which is Slurm's own"),
        ("{managedNamespaces: [lab], namespace: lab}", "managedNamespaces has lab, which is the bridge's own and can never be managed"),
        ("managedNamespaces: [kube-system]", "managedNamespaces has kube-system, which is Kubernetes' own"),
        ("a: b: c", "is not YAML"),
        ("[1, 2]", "Expected `object`, got `array`"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert "config.yaml" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nosuch\.yaml cannot be read: No such file"):
        load_settings(tmp_path / "nosuch.yaml")


def test_how_many_nodes_are_made_anew_at_once_is_a_number_or_a_share() -> None:
    for said, registered, number in (("5%", 1000, 50), ("5%", 10, 1), ("100%", 7, 7), (3, 1000, 3), (0, 10, 1)):
        assert NodeSettings(max_renewing=said).renewing_at_once(registered) == number
