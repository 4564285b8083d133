"""Wires the operator: watches feed the fleet, and the reconciler decides and writes."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import NoReturn

import structlog

from dracpu_api.serving.pages import PageServer
from dracpu_operator.api import access
from dracpu_operator.api.agent_reports import AgentReports
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.events import Events
from dracpu_operator.api.watches import Watches
from dracpu_operator.errors import WatchError
from dracpu_operator.http import Reasons, pages
from dracpu_operator.intervals import Intervals
from dracpu_operator.known import kopf_watch
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.handlers import registry_for
from dracpu_operator.metrics import Metrics
from dracpu_operator.options import RunOptions
from dracpu_operator.reconcile import Reconciler

log = structlog.get_logger()


async def run(
    options: RunOptions,
    *,
    stop: asyncio.Event | None = None,
    intervals: Intervals | None = None,
    watch_process: Callable[[Reasons], Coroutine[None, None, None]] | None = None,
) -> None:
    """Runs until SIGTERM, or until `stop` is set. `watch_process` ends a process that is not live for some time."""
    stop, intervals = stop or asyncio.Event(), intervals or Intervals()
    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGINT, signal.SIGTERM):  # until kopf installs its own handlers
            asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    configuration = await access.load(options.kubeconfig)
    fleet, metrics = Fleet(), Metrics()
    instance = os.environ.get("POD_NAME") or socket.gethostname()
    watching: asyncio.Task[Exception | None] | None = None
    async with Cluster(configuration) as cluster:
        events = Events(cluster, instance)
        reports = AgentReports(fleet, cluster, events, metrics, intervals)
        reconciler = Reconciler(fleet, cluster, events, reports, metrics, intervals)
        watches = Watches(fleet, cluster, metrics, intervals, options.namespace or access.own_namespace())

        def ready() -> list[str]:
            return [*reconciler.ready(), *watches.troubles()]

        async with (
            PageServer(options.http_address, pages(live=reconciler.live, ready=ready, metrics=metrics)) as http,
            asyncio.TaskGroup() as group,
        ):
            # when kopf ends, it cancels every task that was started after it: these are started before
            requesting = {
                group.create_task(_run_when_settled(reconciler, watches), name="reconciler"),
                group.create_task(reports.run(), name="agent reports"),
                *watches.start(group),
            }
            cancelling = group.create_task(kopf_watch.cancel_watches_again(), name="cancelling")
            stopping = group.create_task(stop.wait(), name="stop")
            watchdog = group.create_task(watch_process(reconciler.live), name="watchdog") if watch_process else None
            loading = group.create_task(watches.until_kopf_may_start(reconciler.loaded), name="loading")
            blind = group.create_task(watches.until_blind(reconciler.loaded), name="blind")
            outdated = group.create_task(fleet.outdated.wait(), name="outdated")
            log.info("started", http_port=http.port)
            # kopf starts after the first lists: when custom resources are missing, it warns once and never looks again
            await asyncio.wait({loading, stopping, outdated, blind}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                # kopf is not given `stop`: when a signal ends it, waiting for `stop` would delay its end by 5 s
                registry = registry_for(fleet, partial(access.login, options.kubeconfig, watches.configs))
                watching = group.create_task(kopf_watch.watch(registry, instance), name="kopf")
                await asyncio.wait({watching, stopping, outdated, blind}, return_when=asyncio.FIRST_COMPLETED)
            error = blind.result() if blind.done() else None
            for task in requesting:  # before kopf, which also cancels the HTTP client's tasks: requests would hang
                task.cancel()
            await asyncio.wait(requesting)
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})
            stopping.cancel()
            loading.cancel()
            outdated.cancel()
            blind.cancel()
            cancelling.cancel()
            if watchdog is not None:
                watchdog.cancel()
    if fleet.outdated.is_set():
        raise WatchError(
            "the API server shows older versions than before, as after a restore from a backup: a new process has to "
            "list everything again"
        )
    if error is not None:
        raise error
    if watching is not None and not watching.cancelled() and (cause := watching.result()) is not None:
        raise WatchError(f"watching the API server failed for good: {cause}") from cause
    log.info("stopped")


async def _run_when_settled(reconciler: Reconciler, watches: Watches) -> NoReturn:
    await watches.until_settled()
    await reconciler.run()
