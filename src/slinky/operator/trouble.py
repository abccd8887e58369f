"""What keeps an object from becoming what it is to be, in words for its status."""

__all__ = ["Trouble"]


class Trouble(Exception):  # noqa: N818
    """`reason` is one CamelCase word, for conditions. `lasting`: only a change that is seen can end it, so it is not tried again meanwhile. `waiting`: nothing is wrong, something has to come first."""

    def __init__(self, reason: str, message: str, *, lasting: bool = False, waiting: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.lasting = lasting or waiting
        self.waiting = waiting
