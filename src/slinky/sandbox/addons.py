"""stub"""

from typing import Any


async def start(*a: Any) -> None: ...
