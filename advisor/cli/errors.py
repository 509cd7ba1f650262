"""The one error a subcommand raises for its user: a sentence that names the field and the fix."""


class CliError(Exception):
    """Printed as one line on stderr; the command exits 2."""
