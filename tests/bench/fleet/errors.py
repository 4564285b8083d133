"""The errors of the measurement. Each message says what to do."""


class BenchError(Exception):
    """The measurement cannot be made."""


class RefusedError(BenchError):
    """The API server refused a request."""

    def __init__(self, status: int, what: str, answer: bytes) -> None:
        super().__init__(f"{what}: {status}: {answer[:500].decode(errors='replace')}")
        self.status = status
