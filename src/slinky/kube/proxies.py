"""Which proxy a server is reached by, from the environment, as Go programs such as kubectl understand it (NO_PROXY with domains, addresses and CIDRs).

Pure: in goes a URL and the environment, out comes a proxy's URL or nothing.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

__all__ = ["proxy_for"]


def proxy_for(server: str, environment: Mapping[str, str]) -> str:
    parts = urlsplit(server)
    host = parts.hostname or ""
    scheme = parts.scheme
    proxy = environment.get(f"{scheme}_proxy") or environment.get(f"{scheme.upper()}_PROXY") or ""
    if not proxy or host == "localhost" or _is_loopback(host):
        return ""
    spared = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if any(_matches(host, parts.port, entry.strip()) for entry in spared.split(",") if entry.strip()):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _matches(host: str, port: int | None, entry: str) -> bool:
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass
    name, _, wanted_port = entry.partition(":")
    if wanted_port and wanted_port != str(port):
        return False
    name = name.removeprefix("*").lower()
    if name.startswith("."):
        return host.lower().endswith(name)
    return host.lower() == name or host.lower().endswith(f".{name}")
