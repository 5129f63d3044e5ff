"""What Prometheus reads: requests, latencies, sizes of batches, and the queue of every model."""

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from playbook.deploy.server.limits import Limits

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
MODEL = ("model", "version")


class Metrics:
    """The metrics of one server.

    Args:
        limits: with the size of batches, which sets the bounds of their histogram.
    """

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, limits: Limits) -> None:
        self.registry = CollectorRegistry()
        sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256) if size < limits.batch_size]
        own: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter(
            "playbook_requests_total", "Requests by path and status; model is empty before it is known.",
            ("path", *MODEL, "status"), **own,
        )  # fmt: skip
        self.seconds = Histogram(
            "playbook_request_seconds", "Time from the first byte of a request to the last of its answer.",
            ("path", *MODEL), buckets=SECONDS, **own,
        )  # fmt: skip
        self.batches = Histogram(
            "playbook_batch_size", "Samples of a batch.", MODEL, buckets=[*sizes, limits.batch_size], **own
        )
        self.queue = Gauge("playbook_queue_samples", "Samples that wait for a model.", MODEL, **own)
        self.loaded = Gauge("playbook_models", "Versions of models that are served.", **own)

    def text(self) -> bytes:
        """All of them in Prometheus' format."""
        return generate_latest(self.registry)

    def forget(self, name: str, version: int) -> None:
        """Removes the queue of a version that is no longer served."""
        self.queue.remove(name, str(version))
