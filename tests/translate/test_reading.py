"""What `slinky translate` reads, what it says where it cannot, and what its machine-readable output holds."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from slinky.cli.translate import translate

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: main, image: example, resources: {requests: {cpu: "2", memory: 1Gi}}}]}
"""


def run(*words: str, typed: str | None = None) -> Result:
    done = CliRunner().invoke(translate, list(words), input=typed)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


def test_standard_input_several_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(POD % "one" + "---\n" + POD % "two")
    (tmp_path / "three.json").write_text(json.dumps(yaml.safe_load(POD % "three")))
    (tmp_path / "notes.txt").write_text("not a manifest")
    (tmp_path / "sub").mkdir()
    done = run("-f", str(tmp_path), "-f", "-", "-n", "team", typed=POD % "four")
    assert done.exit_code == 0
    assert [line for line in done.output.splitlines() if line.startswith("Pod")] == [
        f"Pod team/{name}" for name in ("one", "two", "three", "four")
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x.yaml is empty"),
        ("a: [", "x.yaml is not YAML"),
        ("just words", "x.yaml is no Kubernetes object: it has no kind"),
        (POD % "one" + "---\n[1, 2]", "x.yaml, document 2 is no Kubernetes object"),
        ("kind: Pod", "x.yaml: Pod has no name (metadata.name)"),
        ("kind: List\nitems: [{kind: Pod}]", "x.yaml, item 1: Pod has no name"),
    ],
)
def test_what_cannot_be_read_is_exit_code_2_and_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    done = run("-f", str(tmp_path / "x.yaml"))
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-f", "/nosuch.yaml"], "/nosuch.yaml cannot be read: No such file or directory"),
        (["-f", "-", "--config", "/nosuch.yaml"], "/nosuch.yaml cannot be read"),
        (["-f", "-", "--namespace-labels", "team"], "'team' must be KEY=VALUE"),
        (["-f", "/dev"], "/dev holds no manifest"),
    ],
)
def test_a_file_or_option_that_is_wrong(words: list[str], said: str) -> None:
    done = run(*words, typed=POD % "one")
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_for_programs(output: str) -> None:
    done = run("-f", "-", "-o", output, typed=POD % "one" + "---\n{kind: Service, metadata: {name: s}}")
    found = yaml.safe_load(done.output)
    [workload] = found["workloads"]
    assert workload["workload"] == "Pod default/one"
    assert workload["jobs"][0]["cpus_per_task"] == 2
    assert "admin_comment" not in workload["jobs"][0]
    assert workload["sbatch"].startswith("sbatch --external --job-name=default/one ")
    assert found["skipped"] == ["Service s: no pods are made of it, as far as is known here"]


@pytest.mark.parametrize(("labels", "managed"), [("slurm=yes,team=a", True), ("slurm=no", False), ("", False)])
def test_a_namespace_is_managed_by_its_labels(tmp_path: Path, labels: str, managed: bool) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("managedNamespaceSelector: {matchLabels: {slurm: 'yes'}}")
    done = run("-f", "-", "--config", str(config), "--namespace-labels", labels, typed=POD % "one")
    assert done.exit_code == 0
    assert ("is not managed by this configuration" in done.output) is not managed


def test_a_thousand_pods_are_one_block() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "many"}}
    job["spec"] = {"parallelism": 1000, "template": {"spec": {"containers": [{"name": "main"}]}}}
    done = run("-f", "-", typed=json.dumps(job))
    assert "Pod default/many-aaaaa (of Job default/many), and 999 more like it" in done.output
    assert done.output.count("sbatch") == 1
