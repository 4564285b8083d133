"""Wires the operator: watches feed the fleet, and the reconciler decides and writes."""

import asyncio
import itertools
import os
import signal
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, cast

import kopf
import structlog

from dracpu_operator.api import access
from dracpu_operator.api.cluster import FIELD_MANAGER, Cluster
from dracpu_operator.api.events import ConfigEvents
from dracpu_operator.errors import WatchError
from dracpu_operator.http import HttpServer
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.handlers import registry_for
from dracpu_operator.known.nodewatch import NodeWatch
from dracpu_operator.metrics import Metrics
from dracpu_operator.options import RunOptions
from dracpu_operator.reconcile import Reconciler

log = structlog.get_logger()

_CANCEL_AGAIN_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = (1, 1, 2, 3, 5, 8, 13)


async def run(options: RunOptions, *, stop: asyncio.Event | None = None, intervals: Intervals | None = None) -> None:
    """Runs until SIGTERM, or until `stop` is set."""
    stop, intervals = stop or asyncio.Event(), intervals or Intervals()
    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGINT, signal.SIGTERM):  # until kopf installs its own handlers
            asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    configuration = await access.load(options.kubeconfig)
    fleet, metrics = Fleet(), Metrics()
    instance = os.environ.get("POD_NAME") or socket.gethostname()
    watching: asyncio.Task[Exception | None] | None = None
    async with Cluster(configuration) as cluster:
        reconciler = Reconciler(fleet, cluster, ConfigEvents(cluster, instance), metrics, intervals)
        async with (
            HttpServer(options.http_address, live=reconciler.live, ready=reconciler.ready, metrics=metrics) as http,
            asyncio.TaskGroup() as group,
        ):
            # when kopf ends, it cancels every task that was started after it: these are started before
            requesting = {
                group.create_task(reconciler.run(), name="reconciler"),
                group.create_task(NodeWatch(fleet, cluster, intervals).run(), name="nodes"),
            }
            cancelling = group.create_task(_cancel_watches_again(), name="cancelling")
            stopping = group.create_task(stop.wait(), name="stop")
            loading = group.create_task(reconciler.loaded.wait(), name="loading")
            log.info("started", http_port=http.port)
            # when custom resources are missing, kopf warns once and never looks again: so it starts after the first
            # lists
            await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                # kopf is not given `stop`: when a signal ends it, waiting for `stop` would delay its end by 5 s
                watching = group.create_task(_watch(fleet, options, instance), name="kopf")
                await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in requesting:  # before kopf, which also cancels the HTTP client's tasks: requests would hang
                task.cancel()
            await asyncio.wait(requesting)
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})
            stopping.cancel()
            loading.cancel()
            cancelling.cancel()
    if watching is not None and not watching.cancelled() and (error := watching.result()) is not None:
        raise WatchError(f"watching the API server failed for good: {error}") from error
    log.info("stopped")


def kopf_settings() -> kopf.OperatorSettings:
    """Settings with which kopf only watches, and writes nothing."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # the operator creates its Events itself, and on transitions only
    settings.peering.standalone = True  # the Deployment has one replica and Recreate; peering is not a lock
    settings.scanning.disabled = True  # which would watch all CRDs and namespaces
    settings.execution.max_workers = 1  # for synchronous handlers, of which there are none
    settings.process.ultimate_exiting_timeout = 30.0
    settings.networking.request_timeout = 30.0
    settings.networking.error_backoffs = _Forever()
    settings.watching.chunk_size = 500
    settings.queueing.idle_timeout = 1.0  # how long the task of an object waits for its next event
    # event handlers write no marks onto objects; the marks of any other handler would have our name
    settings.persistence.finalizer = f"dra.cpu/{FIELD_MANAGER}"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="dra.cpu")
    settings.persistence.diffbase_storage = _NoDiffs()
    return settings


async def _watch(fleet: Fleet, options: RunOptions, instance: str) -> Exception | None:
    """Runs kopf until a signal ends it. Returns the error when kopf gave up, as it does when a kind is no longer
    served."""
    registry = registry_for(fleet, partial(access.login, options.kubeconfig))
    # without an identity, kopf looks up the user's name, and the image has no entry for user 65532
    identity = cast(Any, instance)  # kopf does not export its type
    try:
        await kopf.operator(registry=registry, settings=kopf_settings(), clusterwide=True, identity=identity)
    except Exception as error:  # noqa: BLE001 - kopf has no base class for the errors that end it
        return error
    return None


async def _cancel_watches_again() -> None:
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
