"""The reference of the configuration file, made from the types that read it.

Pure. Comes in: nothing but `Settings`. Goes out: Markdown, kept in docs/bridge-configuration.md (`slinky bridge settings` prints it). What must stay true: every
key is there with its type, default and help, in the words that stand where it is defined; the example at the top can be loaded.
"""

from slinky.bridge.settings import Settings
from slinky.kube.objects import LabelSelector
from slinky.settings import tables

__all__ = ["EXAMPLE", "reference"]

EXAMPLE = """\
schedulerName: slurm-bridge-scheduler
slurmRestApi: http://slurm-restapi.slurm:6820
managedNamespaceSelector:
  matchLabels: {slurm: "yes"}
partition: slurm-bridge
windows:
  namespace: 500
slurm:
  tokenFile: /etc/slurm-bridge/token/auth-token
admission:
  failOpen: false
"""

INTRODUCTION = f"""\
# Configuration of the bridge

Made from the code: `slinky bridge settings > docs/bridge-configuration.md`.

One YAML file for all of the bridge's processes, `/etc/slurm-bridge/config.yaml` unless `--config` or `SLINKY_BRIDGE_CONFIG` says otherwise. It is read once, at start. Every key may be left out. One that is
not known is refused by its name.

```yaml
{EXAMPLE}```

A configuration file of the original slurm-bridge is accepted as it stands: its keys (`schedulerName`, `slurmRestApi`, `managedNamespaces`, `managedNamespaceSelector`, `mcsLabel` and `partition`) have the
same names and meaning here. What it set elsewhere has a key of its own here, such as `slurm.tokenFile` for its environment variable `SLURM_JWT_FILE`.
"""


def reference() -> str:
    return f"{INTRODUCTION}\n{tables(Settings, {LabelSelector: 'label selector'})}"
