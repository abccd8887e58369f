"""What is made of custom resources, judged by those it is made for: the real API server takes every object, strictly; real slurmctld, slurmd and slurmrestd start with the files and arguments of the golden cases."""

import asyncio
import base64
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from slinky.kube import Client, KubeError, from_kubeconfig
from slinky.operator import names
from slinky.operator.conf import all_files, slurm_conf
from slinky.operator.conf.parameters import SLURM_PARAMETERS, SLURMDBD_PARAMETERS
from slinky.operator.conf.text import joined, parse
from slinky.operator.nodesets import marks
from slinky.operator.objects import worker_parts
from slinky.operator.objects.view import ClusterView
from slinky.sandbox.certificates import Authority
from slinky.sandbox.handle import Sandbox
from tests.operator.real_slurm import Run, Verdict, words
from tests.operator.test_golden import CASES, Case

pytestmark = pytest.mark.sandbox

PATHS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
}
STRICTLY = {"dryRun": "All", "fieldManager": "slinky-operator", "force": "true", "fieldValidation": "Strict"}
RUNNABLE = [
    folder
    for folder in CASES
    if (folder / "in.yaml").read_text().count("kind: Controller") and "external: true" not in (folder / "in.yaml").read_text()
]


async def test_the_api_server_takes_every_object_and_knows_every_field_of_it(sandbox: Sandbox, namespace: str) -> None:
    made = [(folder.name, one) for folder in CASES for one in Case(folder).made() if one["kind"] in PATHS]
    wrong = next(one for _, one in made if one["kind"] == "Service")
    made.append(("a field that no Service has", wrong | {"spec": wrong["spec"] | {"sellector": {}}}))
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as client:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        await applied(client, f"/api/v1/namespaces/{namespace}/serviceaccounts/default", account, dryRun="")
        answers = await asyncio.gather(*(refusal(client, name, one, namespace) for name, one in made))
    refused = [answer for answer in answers if answer]
    assert len(refused) == 1, "\n".join(refused)
    assert "sellector" in refused[0]


async def test_heads_pass_as_restricted_and_logins_as_baseline(sandbox: Sandbox, namespace: str) -> None:
    """By Kubernetes' own Pod Security Standards. Workers are privileged unless an administrator says otherwise, and no more is claimed of them."""
    levels = {
        "cluster-smallest": "restricted",
        "accounting": "restricted",
        "restapi": "restricted",
        "loginset": "baseline",
        "nodeset-plain": "baseline",
    }
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as client:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        await applied(client, f"/api/v1/namespaces/{namespace}/serviceaccounts/default", account, dryRun="")
        refused = {}
        for case, level in levels.items():
            labelled = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": level}},
            }
            await applied(client, f"/api/v1/namespaces/{namespace}", labelled, dryRun="")
            made = Case(next(folder for folder in CASES if folder.name == case)).made()
            answers = [await refusal(client, case, pod, namespace) for pod in map(pod_of, made) if pod]
            refused[case] = [answer for answer in answers if answer]
    assert [case for case, answers in refused.items() if answers] == ["nodeset-plain"], refused
    assert "privileged" in refused["nodeset-plain"][0]


def pod_of(made: dict[str, Any]) -> dict[str, Any] | None:
    """The pod that Kubernetes' controllers would make of it."""
    if made["kind"] == "Pod":
        return made
    template = (made.get("spec") or {}).get("template")
    if not template:
        return None
    spec = template["spec"] | {
        "volumes": [
            *template["spec"]["volumes"],
            *({"name": one["metadata"]["name"], "emptyDir": {}} for one in made["spec"].get("volumeClaimTemplates", [])),
        ]
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": made["metadata"]["name"], "labels": template["metadata"]["labels"]},
        "spec": spec,
    }


async def refusal(client: Client, case: str, made: dict[str, Any], namespace: str) -> str:
    path = f"{PATHS[made['kind']].format(namespace)}/{made['metadata']['name']}"
    try:
        await applied(client, path, made | {"metadata": made["metadata"] | {"namespace": namespace}})
    except KubeError as error:
        return f"{case}: {made['kind']} {made['metadata']['name']}: {error}"
    return ""


async def applied(client: Client, path: str, body: dict[str, Any], **other: str) -> None:
    parameters = {key: value for key, value in (STRICTLY | other).items() if value}
    await client.raw("PATCH", path, body=body, content_type="application/apply-patch+yaml", parameters=parameters)


def etc_of(view: ClusterView) -> dict[str, str]:
    """What stands in /etc/slurm of slurmctld's pod; without accounting, as there is none here."""
    made = all_files(view)
    alone = "".join(f"{line}\n" for line in made["slurm.conf"].splitlines() if not line.startswith("AccountingStorage"))
    issuers = {names.JWKS_FILE: '{"keys": []}'} if view.controller.spec.jwks_key_ref else {}
    return made | {"slurm.conf": alone} | issuers


def run(folder: Path, view: ClusterView, script: str, *more: str) -> Run:
    host = names.controller_host(view.name)
    known = [f"{host}.{names.controller_internal(view.name)}.{view.namespace}", view.controller_address[0], *more]
    return Run(folder, etc_of(view), script, host=host, names=known)


def test_slurmctld_starts_with_every_configuration_that_is_made(tmp_path: Path) -> None:
    script = "timeout 20 scontrol show config\ntimeout 20 scontrol show partition --oneliner\n"
    runs = {folder.name: run(tmp_path / folder.name, Case(folder).view(), script) for folder in RUNNABLE}
    verdicts = {name: one.verdict() for name, one in runs.items()}
    for name, verdict in verdicts.items():
        log = verdict.logs["slurmctld"]
        assert "Running as primary controller" in log, f"{name}: {log}"
        complaints = ["fatal", "Parse error", "Invalid", "deprecated", "Unable"]
        if name != "controller-extra-conf":  # there a list stands in an included file, and ours after it holds both
            complaints.append("more than once")
        assert not [complaint for complaint in complaints if complaint in log], f"{name}: {log}"
    says_what_the_administrator_wrote(verdicts["controller-extra-conf"])
    assert verdicts["controller-files"].config["Prolog[1]"] == "20-b.sh"
    assert "PartitionName=w " in verdicts["nodeset-plain"].told


def says_what_the_administrator_wrote(verdict: Verdict) -> None:
    config = verdict.config
    assert config["ReturnToService"] == "1"
    assert config["MaxNodeCount"] == "4096"
    assert config["SlurmctldParameters"] == "enable_configless,reconfig_on_restart,cloud_dns,node_reg_mem_percent=95"
    assert config["GresTypes"] == "gpu,hca"
    assert "MaxTime=01:00:00" in verdict.told


def test_a_reconfiguration_takes_what_needs_no_new_pod(tmp_path: Path) -> None:
    """More nodes, other GRES, metrics on: all within one slurmctld, whose process stays the pod's first."""
    view = Case(next(folder for folder in CASES if folder.name == "cluster-smallest")).view()
    larger = joined(
        parse(slurm_conf(view)["slurm.conf"]),
        "MaxNodeCount=8192\nGresTypes=gpu,hca\nMetricsType=metrics/openmetrics\nPartitionName=new Nodes=ALL\n",
    )
    script = f"cat > /etc/slurm/slurm.conf <<'END'\n{larger}\nEND\ntimeout 20 scontrol reconfigure\nuntil_told slurmctld 'Attempting to reconfigure'\ntimeout 20 scontrol show config\nkill -0 $slurmctld && echo the same process\nask 6817 /metrics/jobs | head -1\n"
    verdict = run(tmp_path / "host", view, script).verdict()
    assert verdict.config["MaxNodeCount"] == "8192", verdict
    assert verdict.config["GresTypes"] == "gpu,hca"
    assert "the same process" in verdict.told
    assert "200 OK" in verdict.told


def test_the_pods_arguments_make_a_node_and_slurmrestd_needs_no_key(tmp_path: Path) -> None:
    """slurmd's arguments are read by a shell, as in an image; slurmrestd is nobody, and has slurm.conf alone."""
    case = Case(next(folder for folder in CASES if folder.name == "nodeset-unprivileged"))
    view = case.view()
    pod = next(made for made in case.made() if made["kind"] == "Pod")
    slurmd = pod["spec"]["containers"][0]
    script = f"""
hostname {pod["spec"]["hostname"]}
slurmd -D {words(slurmd["args"])} > /tmp/out/slurmd 2>&1 &
until_told slurmd "slurmd started on"
for _ in $(seq 100); do timeout 20 scontrol show node w-0 | grep -q State=IDLE && break; sleep 0.1; done
timeout 20 scontrol show node w-0
for page in livez readyz; do ask 6818 /$page | head -1; ask 6817 /$page | head -1; done
export $(timeout 20 scontrol token username=root)
token=$SLURM_JWT
mkdir /tmp/rest && cp /etc/slurm/slurm.conf /tmp/rest && chmod -R a+rX /tmp/rest && chmod a+x /tmp
cd /tmp/rest
export SLURM_CONF=/tmp/rest/slurm.conf SLURM_JWT=daemon SLURMRESTD_SECURITY=disable_unshare_files,disable_unshare_sysv
as nobody slurmrestd -s openapi/slurmctld 0.0.0.0:6820 > /tmp/out/slurmrestd 2>&1 &
for _ in $(seq 100); do (echo > /dev/tcp/127.0.0.1/6820) 2>/dev/null && break; sleep 0.1; done
ask 6820 /slurm/v0.0.45/partitions/ "X-SLURM-USER-NAME: root" "X-SLURM-USER-TOKEN: $token" | head -1
"""
    verdict = run(tmp_path / "host", view, script, pod["spec"]["hostname"]).verdict()
    assert "ActiveFeatures=w" in verdict.told, verdict
    assert "DYNAMIC_NORM" in verdict.told
    assert verdict.told.count("204 NO CONTENT") == 4, verdict.told
    assert "HTTP/1.1 200 OK" in verdict.told, verdict


def test_a_worker_that_comes_back_is_found_at_its_new_address_and_is_another_once_its_record_was_deleted(tmp_path: Path) -> None:
    """Its name resolves nowhere but for itself: slurmctld goes by the address it registered from. The pod's last act set it DOWN; it is used again all the same. Other features it has only after its record is gone."""
    case = Case(next(folder for folder in CASES if folder.name == "nodeset-unprivileged"))
    view = case.view()
    pod = next(made for made in case.made() if made["kind"] == "Pod")
    host, arguments = pod["spec"]["hostname"], words(pod["spec"]["containers"][0]["args"])
    stopping = worker_parts.slurmd_container(view.nodesets[0], view)["lifecycle"]["preStop"]["exec"]["command"][2]
    script = f"""
sed 's/^127.0.0.1 c-/10.98.0.1 c-/' /etc/hosts > /tmp/hosts && cat /tmp/hosts > /etc/hosts
unshare --net sleep 600 &
pod=$!
inside() {{ nsenter --target $pod --net "$@"; }}
ip link add host-end type veth peer name pod-end
for _ in $(seq 50); do ip link set dev pod-end netns $pod && inside ip link show pod-end > /dev/null 2>&1 && break; sleep 0.1; done
ip address add 10.98.0.1/24 dev host-end && ip link set dev host-end up
inside ip link set dev lo up
as slurm slurmctld -D > /tmp/out/slurmctld 2>&1 &
until_told slurmctld "Running as primary controller"
for address in 10.98.0.2 10.98.0.3 10.98.0.4 10.98.0.5; do
  case $address in *.2) features=w ;; *.4) timeout 20 scontrol delete nodename={host} ;; *) features=w,other ;; esac
  inside ip address add $address/24 dev pod-end
  inside ip link set dev pod-end up
  inside unshare --uts sh -c "hostname {host}; exec slurmd -D {arguments.replace("Features=w", "Features=$features")}" > /tmp/out/slurmd-$address 2>&1 &
  until_told slurmd-$address "slurmd started on"
  for _ in $(seq 100); do timeout 20 scontrol show node {host} | grep -q State=IDLE && break; sleep 0.1; done
  timeout 20 scontrol show node {host} | grep "NodeAddr\\|ActiveFeatures"
  case $address in *.5) timeout 20 scontrol show node {host} | grep 'State=\\|Reason=' ;; *) timeout 30 srun --nodelist={host} sh -c 'echo ran at '$address ;; esac
  case $address in *.4) timeout 20 scontrol update nodename={host} state=drain reason='bad disk' ;; esac
  unshare --uts sh -c {shlex.quote(f"hostname {host}; {stopping}")}
  kill $(pgrep -x slurmd) && wait %+ || true
  inside ip address del $address/24 dev pod-end
done
"""
    files = etc_of(view) | {"slurm.conf": etc_of(view)["slurm.conf"] + "PartitionName=all Nodes=ALL Default=YES\n"}
    head = names.controller_host(view.name)
    known = [f"{head}.{names.controller_internal(view.name)}.{view.namespace}", view.controller_address[0]]
    verdict = Run(tmp_path / "host", files, script, host=head, names=known, start="").verdict()
    for address in ("10.98.0.2", "10.98.0.3", "10.98.0.4"):
        assert f"NodeAddr={address} " in verdict.told, verdict
        assert f"ran at {address}" in verdict.told, verdict
    assert re.findall(r"ActiveFeatures=(\S+)", verdict.told) == ["w", "w", "w,other", "w,other"]
    assert "returned to service" in verdict.logs["slurmctld"]
    assert "State=IDLE+DRAIN" in verdict.told, "what an administrator drained stays so"
    assert "Reason=bad disk" in verdict.told


def test_a_worker_that_is_down_comes_back_to_use_by_itself_unless_it_is_drained_and_what_an_admin_said_of_it_stays(tmp_path: Path) -> None:
    """Why a worker that is down is drained before it goes, and how: told as `Carrier` tells it, and to the pod's last act."""
    case = Case(next(folder for folder in CASES if folder.name == "nodeset-unprivileged"))
    view = case.view()
    pod = next(made for made in case.made() if made["kind"] == "Pod")
    host, arguments = pod["spec"]["hostname"], words(pod["spec"]["containers"][0]["args"])
    stopping = worker_parts.slurmd_container(view.nodesets[0], view)["lifecycle"]["preStop"]["exec"]["command"][2]
    ours = marks.with_before("slurm-operator: x", "broken fan")
    script = f"""
hostname {host}
began() {{
  slurmd -D {arguments} > /tmp/out/slurmd 2>&1 &
  slurmd=$!
  until_told slurmd "slurmd started on"
}}
ended() {{ kill $slurmd; wait $slurmd || true; rm /tmp/out/slurmd; }}
told() {{ echo "$1 $(timeout 20 scontrol --oneliner show node {host})"; }}
update() {{ timeout 20 scontrol update nodename={host} "$@"; }}
until_state() {{ for _ in $(seq 200); do timeout 20 scontrol show node {host} | grep -q "State=$1" && return 0; sleep 0.1; done; }}
began
until_state IDLE
update state=down reason='broken fan'
ended; began
until_state IDLE
told used-again
update state=down reason='broken fan'
update state=drain reason='{ours}'
told drained
ended; began
until_state IDLE+DRAIN
told back
update state=down reason='{ours}'
ended
update state=undrain
update reason='broken fan'
told undone
sh -c {shlex.quote(stopping)}
told ended
"""
    verdict = run(tmp_path / "host", view, script, host).verdict()
    said = {
        line.split()[0]: (re.findall(r"State=(\S+)", line), re.findall(r"Reason=(.*) \[", line))
        for line in verdict.told.splitlines()
        if "State=" in line
    }
    assert said["used-again"] == (["IDLE+DYNAMIC_NORM"], []), verdict
    assert said["drained"] == (["DOWN+DRAIN+DYNAMIC_NORM"], [ours]), verdict
    assert said["back"] == (["IDLE+DRAIN+DYNAMIC_NORM"], [ours]), verdict
    assert said["undone"][0][0].startswith("DOWN"), verdict
    assert "DRAIN" not in said["undone"][0][0], verdict
    assert said["undone"][1] == said["ended"][1] == ["broken fan"], verdict


def test_slurm_itself_knows_every_parameter_that_is_said_to_be_one(tmp_path: Path) -> None:
    files = {"slurm.conf": "".join(f"{word}=1\n" for word in (*SLURM_PARAMETERS.values(), "NotOne"))}
    files["slurmdbd.conf"] = "".join(f"{word}=1\n" for word in (*SLURMDBD_PARAMETERS.values(), "NotOne"))
    script = """
timeout 20 scontrol show config > /tmp/out/slurm 2>&1 || true
chown slurm /etc/slurm/slurmdbd.conf && chmod 600 /etc/slurm/slurmdbd.conf
as slurm timeout 20 slurmdbd -D > /tmp/out/slurmdbd 2>&1 || true
"""
    logs = Run(tmp_path / "host", files, script, host="judge", start="").verdict().logs
    for daemon in ("slurm", "slurmdbd"):
        assert re.findall(r"unrecognized key: (\w+)", logs[daemon]) == ["NotOne"], logs[daemon]


def test_slurmdbd_opens_its_database_by_tls_with_a_password_of_difficult_letters(tmp_path: Path) -> None:
    """The database takes this user by TLS only, and by no other certificate."""
    case = Case(next(folder for folder in CASES if folder.name == "accounting"))
    secret = next(made for made in case.made() if made["kind"] == "Secret")
    written = base64.b64decode(secret["data"]["slurmdbd.conf"]).decode()
    conf = joined(parse(written), "StorageHost=db.example.org\nStoragePort=3306\n").replace(
        "SSL_CIPHER=AES256", "SSL_CIPHER=TLS_AES_256_GCM_SHA384"
    )
    authority = Authority.create(tmp_path / "ca")
    authority.issue("server", "db.example.org", hosts=("db.example.org",))
    authority.issue("client", "slurmdbd")
    pems = {path.name: path.read_text() for path in (tmp_path / "ca").iterdir() if path.suffix in (".crt", ".key")}
    files = {
        "slurmdbd.conf": conf,
        "storage-ca.pem": pems["ca.crt"],
        "storage-cert.pem": pems["client.crt"],
        "storage-key.pem": pems["client.key"],
    }
    files |= {"jwks.json": '{"keys": []}', "server.crt": pems["server.crt"], "server-key.pem": pems["server.key"]}
    password = case.around.password.replace("\\", "\\\\")
    script = f"""
cd /tmp
mkdir -p /var/spool/my /run/mysqld
chown mysql /var/spool/my /run/mysqld
mariadb-install-db --no-defaults --user=mysql --datadir=/var/spool/my --skip-test-db > /tmp/out/install 2>&1
mariadbd --no-defaults --user=mysql --datadir=/var/spool/my --socket=/run/mysqld/socket --bind-address=127.0.0.1 --innodb-snapshot-isolation=OFF \
  --ssl-ca=/etc/slurm/storage-ca.pem --ssl-cert=/etc/slurm/server.crt --ssl-key=/etc/slurm/server-key.pem > /tmp/out/mariadb 2>&1 &
until_told mariadb "ready for connections"
mariadb --no-defaults -S /run/mysqld/socket <<'END'
CREATE DATABASE slurm_acct_db;
CREATE USER slurm@'%' IDENTIFIED BY '{password}' REQUIRE X509;
GRANT ALL ON slurm_acct_db.* TO slurm@'%';
END
chown root:slurm /etc/slurm/slurmdbd.conf /etc/slurm/storage-*.pem
chmod 640 /etc/slurm/slurmdbd.conf /etc/slurm/storage-*.pem
mkdir -p /run/slurmdbd && chown slurm /run/slurmdbd
as slurm slurmdbd -D > /tmp/out/slurmdbd 2>&1 &
until_told slurmdbd "slurmdbd version .* started\\|fatal\\|mysql_real_connect failed"
mariadb --no-defaults -S /run/mysqld/socket -e "select user, ssl_type from mysql.user where user = 'slurm'; show processlist"
"""
    verdict = Run(tmp_path / "host", files, script, host="a-accounting-0", names=["db.example.org"], start="").verdict()
    assert " started" in verdict.logs.get("slurmdbd", ""), verdict
    assert "slurm_acct_db" in verdict.told
