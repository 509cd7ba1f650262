"""The `tuning-advisor` command. Imports no Django and no torch; every subcommand is one module."""
