"""Configuration files as typed records: each option's help stands where it is defined, and the reference in the docs is made from it.

`Section` is what a file is made of (`SlurmSection`, `LeaderSection` and `WebhookSection` are what several services have), `load` reads one, `tables` documents it, `listening` says which port was wrong. A key that is not known is refused by its name: a typing mistake must not become a default.
"""

from slinky.settings.file import load
from slinky.settings.ports import listening
from slinky.settings.reference import tables
from slinky.settings.sections import Help, Section, SettingsError
from slinky.settings.services import LeaderSection, SlurmSection, WebhookSection

__all__ = ["Help", "LeaderSection", "Section", "SettingsError", "SlurmSection", "WebhookSection", "listening", "load", "tables"]
