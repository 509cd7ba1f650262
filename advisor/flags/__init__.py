"""Launch commands of serving engines against the options that a version really has. Pure."""

from advisor.flags.catalogue import Catalogue, Option, catalogue, versions
from advisor.flags.check import Problem, check
from advisor.flags.command import Command, CommandError, read_command

__all__ = [
    "Catalogue",
    "Command",
    "CommandError",
    "Option",
    "Problem",
    "catalogue",
    "check",
    "read_command",
    "versions",
]
