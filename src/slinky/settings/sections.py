"""What a section of a configuration file is made of: a typed record whose keys are camelCase in the file, and an option's help, which stands where the option is defined."""

import msgspec

__all__ = ["Help", "Section", "SettingsError"]


class SettingsError(Exception):
    """The configuration file cannot be used; the message names the file, the key and what would be right."""


def Help(text: str) -> msgspec.Meta:  # noqa: N802
    return msgspec.Meta(description=text)


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Keys in the file are camelCase. One that is not known is refused by its name."""
