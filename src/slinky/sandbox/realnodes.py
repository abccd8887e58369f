"""stub"""

from typing import Any


async def start_machines(*a: Any) -> None: ...
async def start_nodes(*a: Any) -> None: ...
