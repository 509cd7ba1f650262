"""The one error of an import: which field is wrong, and what it should be."""


class ImportRefused(Exception):
    """field: dotted path in the file, or `file`. message: one sentence with the fix."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message
