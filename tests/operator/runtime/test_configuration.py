"""A configuration's one name, and its files in one place."""

from dataclasses import replace
from typing import Any

import msgspec

from slinky.kube import Meta
from slinky.operator.conf.slurm import slurm_conf
from slinky.operator.configuration import MARK, MOST_BYTES, all_files, bundled, confirmed_copy, mark_in, marked, too_large, with_files
from slinky.operator.kinds import Controller, ControllerSpec, NameReference
from slinky.operator.objects.controller import controller_objects
from slinky.operator.objects.view import ClusterView


def view(**spec: Any) -> ClusterView:
    given = {
        "slurmctld": {"image": "i"},
        "config_file_refs": [NameReference(name="files")],
        "prolog_script_refs": [NameReference(name="scripts")],
    }
    controller = Controller(metadata=Meta(name="c", namespace="lab", uid="u"), spec=ControllerSpec(**given | spec))
    return ClusterView(controller=controller, files={"files": {"gres.conf": "Name=disk Count=1\n"}, "scripts": {"p.sh": "#!/bin/sh\n"}})


def test_slurm_conf_carries_the_digest_of_all_files() -> None:
    found, digest = marked(view(extra_conf="SlurmctldParameters=idle_on_node_suspend\n"))
    text = slurm_conf(found)["slurm.conf"]
    line = next(each for each in text.splitlines() if each.startswith("SlurmctldParameters="))
    assert line.endswith(f"idle_on_node_suspend,{MARK}={digest}") and "enable_configless" in line
    assert mark_in(line.partition("=")[2].split(",")) == mark_in(line) == digest


def test_any_change_of_any_file_is_another_digest() -> None:
    plain = view()
    digests = [
        marked(each)[1]
        for each in (
            plain,
            replace(plain, files={**plain.files, "files": {"gres.conf": "Name=disk Count=2\n"}}),
            replace(plain, files={**plain.files, "scripts": {"p.sh": "#!/bin/bash\n"}}),
            replace(plain, files={**plain.files, "files": {**plain.files["files"], "topology.yaml": ""}}),
            view(extra_conf="MaxJobCount=5\n"),
        )
    ]
    assert len(set(digests)) == len(digests)
    assert marked(view())[1] == digests[0]


def test_the_pod_has_all_files_from_one_config_map() -> None:
    found, _ = marked(view())
    objects = bundled(controller_objects(found.controller, found), found)
    config = next(each for each in objects if each["kind"] == "ConfigMap")
    assert set(config["data"]) == {"slurm.conf", "cgroup.conf", "gres.conf", "p.sh"} == set(all_files(found))
    pod = next(each for each in objects if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    sources = next(volume for volume in pod["volumes"] if volume["name"] == "slurm-etc")["projected"]["sources"]
    assert [source["configMap"]["name"] for source in sources if "configMap" in source] == ["c-config"]


def test_a_new_configuration_alone_does_not_change_the_pod() -> None:
    def template(found: ClusterView) -> Any:
        chosen, _ = marked(found)
        objects = bundled(controller_objects(chosen.controller, chosen), chosen)
        return next(each for each in objects if each["kind"] == "StatefulSet")["spec"]["template"]

    assert template(view()) == template(view(extra_conf="MaxJobCount=5\nSchedulerParameters=defer\n"))
    changed = view()
    assert template(view()) == template(replace(changed, files={**changed.files, "scripts": {"p.sh": "exit 1\n"}}))
    assert template(view()) != template(view(extra_conf="SlurmctldPort=7000\n"))


def test_slurm_that_has_no_mark_says_nothing() -> None:
    assert mark_in(None) == mark_in([]) == mark_in("enable_configless") == ""


def test_the_view_keeps_what_was_written() -> None:
    found, _ = marked(view(extra_conf="MaxJobCount=5"))
    assert found.controller.spec.extra_conf.startswith("MaxJobCount=5\n")
    assert msgspec.structs.replace(found.controller.spec, extra_conf="") == msgspec.structs.replace(view().controller.spec, extra_conf="")


def test_what_was_confirmed_is_kept_beside_and_can_be_gone_back_to() -> None:
    found, digest = marked(view())
    objects = bundled(controller_objects(found.controller, found), found)
    copy = confirmed_copy(objects, "c")
    assert copy["metadata"]["name"] == "c-config-confirmed" and mark_in(copy["data"]["slurm.conf"]) == digest
    other, _ = marked(view(extra_conf="SchedulerTyp=x\n"))
    back = with_files(bundled(controller_objects(other.controller, other), other), "c", copy["data"])
    config = next(each for each in back if each["metadata"]["name"] == "c-config")
    assert config["data"] == copy["data"]
    assert [each["kind"] for each in back] == [each["kind"] for each in objects]


def test_files_that_one_configmap_cannot_hold_are_named_with_their_sizes() -> None:
    """Each of them may come from a ConfigMap of its own, and be small enough there."""
    assert too_large(all_files(view())) == ""
    assert too_large({"a": "x" * MOST_BYTES}) == ""
    said = too_large({"slurm.conf": "x", "topology.yaml": "é" * 400_000, "nodes.conf": "x" * 300_000})
    assert "have 1,100,001 bytes, and the one ConfigMap that they go into holds 1,048,576" in said
    assert "(the largest: topology.yaml 800,000, nodes.conf 300,000, slurm.conf 1)" in said
