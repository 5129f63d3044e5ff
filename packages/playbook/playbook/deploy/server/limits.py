"""What the server accepts at most, and how it refuses the rest."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a request, a connection and the queue of a model.

    Args:
        batch_size: samples that the model gets at a time.
        max_queue: samples that wait for a model, over all requests; also the most that one request may have.
        max_body_mib: size of a request's body in MiB.
        timeout_s: seconds from the last byte of a request to its answer, or from one piece of a stream to the next.
        body_timeout_s: seconds in which the headers of a request must arrive, and then its body.
        max_connections: connections at a time.
        max_pixels: pixels of a picture that are decoded.
        max_new_tokens: tokens that a request may ask a language model for.
    """

    batch_size: int = 32
    max_queue: int = 256
    max_body_mib: float = 16.0
    timeout_s: float = 30.0
    body_timeout_s: float = 10.0
    max_connections: int = 512
    max_pixels: int = 2**24
    max_new_tokens: int = 4096

    @property
    def max_body(self) -> int:
        """Bytes of a body."""
        return int(self.max_body_mib * 2**20)


class RefusalError(Exception):
    """A request that gets no answer.

    Args:
        status: of the HTTP response, from 400.
        text: one sentence for the client.
        retry_after_s: seconds after which to try again, if that may help.
    """

    def __init__(self, status: int, text: str, retry_after_s: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after_s = retry_after_s
