"""Runs kopf, which watches the custom resources and does nothing else here."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any, Final, NoReturn, cast

import kopf

_CANCEL_AGAIN_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = (1, 1, 2, 3, 5, 8, 13)
_MARKS: Final = "dra.cpu"


async def watch(registry: kopf.OperatorRegistry, instance: str, started: asyncio.Event) -> Exception | None:
    """Runs kopf until it is cancelled. Returns the error when kopf gave up, as it does when a kind is no longer served.
    `started` is set when kopf has installed its handlers of signals."""
    # without an identity, kopf looks up the user's name, and the image has no entry for user 65532
    identity = cast(Any, instance)  # kopf does not export its type
    try:
        await kopf.operator(
            registry=registry, settings=_settings(), clusterwide=True, identity=identity, ready_flag=started
        )
    except Exception as error:  # noqa: BLE001 - kopf has no base class for the errors that end it
        return error
    return None


async def cancel_watches_again() -> NoReturn:
    """Cancels those of kopf's watches again that still run some time after they were cancelled.

    kopf 1.45: a cancellation is lost when a watch changes its connection at that moment. The watch continues, and kopf
    waits for it until the process is killed.
    """
    cancelled: set[asyncio.Task[Any]] = set()
    while True:
        await asyncio.sleep(_CANCEL_AGAIN_SECONDS)
        for task in cancelled:
            task.cancel()
        cancelled = {
            task for task in asyncio.all_tasks() if task.cancelling() and task.get_name().startswith("watcher for ")
        }


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # the operator creates its Events itself, and on transitions only
    settings.peering.standalone = True  # the leader is elected by a Lease; peering is not a lock
    settings.scanning.disabled = True  # which would watch all CRDs and namespaces
    settings.execution.max_workers = 1  # for synchronous handlers, of which there are none
    settings.process.ultimate_exiting_timeout = 30.0
    settings.networking.request_timeout = 30.0
    settings.networking.error_backoffs = _Forever()
    settings.watching.chunk_size = 500
    settings.queueing.idle_timeout = 1.0  # how long the task of an object waits for its next event
    # event handlers write no marks onto objects; the marks of any other handler would have these names
    settings.persistence.finalizer = f"{_MARKS}/dracpu-operator"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=_MARKS)
    settings.persistence.diffbase_storage = _NoDiffs()
    return settings


class _NoDiffs(kopf.DiffBaseStorage):
    """Keeps kopf from copying each object at each event to compare it with the one before. That took a fifth of the
    processor time of the first rollout to 5,000 nodes, and only handlers of changes use it."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        raise NotImplementedError("there are no handlers of changes")


class _Forever:
    """Retry delays without an end: a watch that gives up would end the operator, and the next one would do the same."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(_RETRY_SECONDS, itertools.repeat(_RETRY_SECONDS[-1]))
