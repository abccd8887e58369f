"""sshd_config, for logins and for workers that people may log in to.

What must stay true: sshd takes the first value it reads of a parameter, so an administrator's lines stand before ours; a `Match` of theirs ends before ours begin.
"""

from slinky.operator.kinds import LoginSet, NodeSet

__all__ = ["AUTHORIZED_KEYS", "HOST_KEYS", "HOST_KEY_FILES", "login_sshd_config", "worker_sshd_config"]

HOST_KEYS = "/etc/ssh/host-keys"
HOST_KEY_FILES = ("ssh_host_ed25519_key", "ssh_host_ecdsa_key", "ssh_host_rsa_key")
AUTHORIZED_KEYS = "/etc/ssh/authorized-keys"

_COMMON = """\
Include /etc/ssh/sshd_config.d/*.conf
UsePAM yes
PrintMotd no
X11Forwarding yes
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""


def login_sshd_config(loginset: LoginSet) -> str:
    """Host keys come from their Secret; root's authorized keys are read anew at every login, so a change needs no restart."""
    root = (
        f"Match User root\n    AuthorizedKeysCommand /usr/bin/cat {AUTHORIZED_KEYS}/authorized_keys\n    AuthorizedKeysCommandUser nobody\n"
    )
    keys = "".join(f"HostKey {HOST_KEYS}/{file}\n" for file in HOST_KEY_FILES)
    return _joined(loginset.spec.extra_sshd_config, keys + _COMMON, root)


def worker_sshd_config(nodeset: NodeSet) -> str:
    return _joined(nodeset.spec.ssh.extra_sshd_config, _COMMON, "")


def _joined(theirs: str, ours: str, matched: str) -> str:
    """Their settings, ours, their Match blocks, ours."""
    lines = theirs.splitlines()
    begun = next((number for number, line in enumerate(lines) if line.split()[:1] and line.split()[0].lower() == "match"), len(lines))
    parts = ("\n".join(lines[:begun]).strip(), ours.strip(), "\n".join(lines[begun:]).strip(), matched.strip())
    return "".join(f"{part}\n" for part in parts if part)
