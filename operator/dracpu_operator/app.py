"""The operator put together: watches tell, the fleet remembers, the reconciler decides and writes."""

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

_INSIST_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = (1, 1, 2, 3, 5, 8, 13)


async def run(options: RunOptions, *, stop: asyncio.Event | None = None, intervals: Intervals | None = None) -> None:
    """Until SIGTERM, or until `stop` is set."""
    stop, intervals = stop or asyncio.Event(), intervals or Intervals()
    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGINT, signal.SIGTERM):  # until kopf takes them over
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
            # kopf ends every task that is younger than itself when it ends: these are older
            asking = {
                group.create_task(reconciler.run(), name="reconciler"),
                group.create_task(NodeWatch(fleet, cluster, intervals).run(), name="nodes"),
            }
            insisting = group.create_task(_insist(), name="insisting")
            stopping = group.create_task(stop.wait(), name="stop")
            loading = group.create_task(reconciler.loaded.wait(), name="loading")
            log.info("started", http_port=http.port)
            # kopf would warn of missing custom resources once, and never look again
            await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                # not given `stop`: waiting for it would keep kopf from ending for 5 s when a signal ends it
                watching = group.create_task(_watch(fleet, options, instance), name="kopf")
                await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in asking:  # before kopf: it also ends tasks of the HTTP client, and no answer would ever come
                task.cancel()
            await asyncio.wait(asking)
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})
            stopping.cancel()
            loading.cancel()
            insisting.cancel()
    if watching is not None and not watching.cancelled() and (error := watching.result()) is not None:
        raise WatchError(f"watching the API server came to an end: {error}") from error
    log.info("stopped")


def kopf_settings() -> kopf.OperatorSettings:
    """kopf as a watcher that writes nothing."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # Events are ours, and on transitions only
    settings.peering.standalone = True  # one replica, Recreate; peering is no lock
    settings.scanning.disabled = True  # would need to watch all CRDs and namespaces
    settings.execution.max_workers = 1  # no handler is synchronous
    settings.process.ultimate_exiting_timeout = 30.0
    settings.networking.request_timeout = 30.0
    settings.networking.error_backoffs = _Forever()
    settings.watching.chunk_size = 500
    settings.queueing.idle_timeout = 1.0  # each object has a task of its own until it has been quiet for so long
    # event handlers leave no marks; were another handler to be added, its marks would bear our name
    settings.persistence.finalizer = f"dra.cpu/{FIELD_MANAGER}"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="dra.cpu")
    settings.persistence.diffbase_storage = _NoDiffs()
    return settings


async def _watch(fleet: Fleet, options: RunOptions, instance: str) -> Exception | None:
    """Until a signal comes; returns what else made kopf give up, as it does when a resource is not served any more."""
    registry = registry_for(fleet, partial(access.login, options.kubeconfig))
    # kopf: without an identity it asks for the user's name, and the image knows no user 65532
    identity = cast(Any, instance)  # kopf exports no name for its type
    try:
        await kopf.operator(registry=registry, settings=kopf_settings(), clusterwide=True, identity=identity)
    except Exception as error:  # noqa: BLE001 - kopf has no base class of its own for what ends it
        return error
    return None


async def _insist() -> None:
    """Cancels kopf's watches again that are still there a while after they were cancelled.

    kopf 1.45: a cancellation that comes while a watch changes its connection is lost, the watch goes on, and kopf waits
    for it until it kills the process.
    """
    asked: set[asyncio.Task[Any]] = set()
    while True:
        await asyncio.sleep(_INSIST_SECONDS)
        for task in asked:
            task.cancel()
        asked = {
            task for task in asyncio.all_tasks() if task.cancelling() and task.get_name().startswith("watcher for ")
        }


class _NoDiffs(kopf.DiffBaseStorage):
    """kopf copies each object at each event, to compare it with the last one handled: a fifth of the processor time of
    a first convergence with 5,000 nodes, for handlers that we do not have."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        raise NotImplementedError("only handlers of changes store what they handled")


class _Forever:
    """Delays without an end: a watch that gives up would end the operator, which then does the same again."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(_RETRY_SECONDS, itertools.repeat(_RETRY_SECONDS[-1]))
