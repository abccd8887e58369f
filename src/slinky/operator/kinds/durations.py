"""Times as Kubernetes' own objects have them: `15m`, `1h30m`, `0.5h`."""

import re

__all__ = ["seconds_of"]

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")


def seconds_of(text: str) -> float:
    """`1h30m` → 5400. Raises ValueError."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'"{text}" is no time; it would look like 15m, 1h30m or 24h')
    return sum(float(number) * UNITS[unit] for number, unit in parts)
