"""Wires the operator: watches feed the fleet, and the reconciler decides and writes."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NoReturn

import structlog

from dracpu_api.serving.pages import PageServer
from dracpu_operator.api import access
from dracpu_operator.api.agent_reports import AgentReports
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.events import Events
from dracpu_operator.api.lease import LeaseFile
from dracpu_operator.api.watches import Watches
from dracpu_operator.decide.leadership import LeasePace
from dracpu_operator.election import Election, Unopposed
from dracpu_operator.errors import AccessError, LeadershipError, WatchError
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
    pace: LeasePace | None = None,
    instance: str = "",
    watch_process: Callable[[Reasons], Coroutine[None, None, None]] | None = None,
) -> None:
    """Runs until SIGTERM, or until `stop` is set. `watch_process` ends a process that is not live for some time; `pace`
    is that of the election, and `instance` names this process in Events and in the Lease."""
    stop, intervals = stop or asyncio.Event(), intervals or Intervals()
    _stop_on_signals(stop)
    configuration = await access.load(options.kubeconfig)
    fleet, metrics = Fleet(), Metrics()
    instance = instance or os.environ.get("POD_NAME") or socket.gethostname()
    watching: asyncio.Task[Exception | None] | None = None
    error: WatchError | LeadershipError | None = None
    namespace = options.namespace or access.own_namespace()
    lease = LeaseFile(configuration, _namespace_of_lease(namespace)) if options.leader_elect else None
    leadership = Election(lease, instance, metrics, pace) if lease else Unopposed(metrics)
    async with lease or contextlib.nullcontext(), Cluster(configuration, leadership) as cluster:
        events = Events(cluster, instance)
        reports = AgentReports(fleet, cluster, events, metrics, intervals)
        reconciler = Reconciler(fleet, cluster, events, reports, metrics, intervals, leading=leadership.leading)
        watches = Watches(fleet, cluster, metrics, intervals, namespace)

        def ready() -> list[str]:
            return [*reconciler.ready(), *watches.troubles(), *leadership.problems()]

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
            able, kopf_started = asyncio.Event(), asyncio.Event()
            loading = group.create_task(watches.until_kopf_may_start(reconciler.loaded), name="loading")
            stopping = group.create_task(stop.wait(), name="stop")
            outdated = group.create_task(fleet.outdated.wait(), name="outdated")
            blind = group.create_task(watches.until_blind(reconciler.loaded), name="blind")
            electing = group.create_task(leadership.run(able), name="election")
            ends: set[asyncio.Task[Any]] = {stopping, outdated, blind, electing}
            helping: set[asyncio.Task[Any]] = {
                group.create_task(kopf_watch.cancel_watches_again(), name="cancelling"),
                group.create_task(_stop_on_signals_again(stop, kopf_started), name="signals"),
                group.create_task(_enable(able, reconciler, watches), name="enabling"),
            }
            if watch_process:
                helping.add(group.create_task(watch_process(reconciler.live), name="watchdog"))
            log.info("started", http_port=http.port)
            # kopf starts after the first lists: when custom resources are missing, it warns once and never looks again
            await asyncio.wait({loading, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                # kopf is not given `stop`: waiting for `stop` would delay its end by 5 s
                registry = registry_for(fleet, partial(access.login, options.kubeconfig, watches.configs))
                watching = group.create_task(kopf_watch.watch(registry, instance, kopf_started), name="kopf")
                await asyncio.wait({watching, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if electing.done():
                error = electing.result()
            elif blind.done():
                error = blind.result()
            elif stopping.done():
                await _cancelled(electing)
                await leadership.resign()
            for task in requesting:  # before kopf, which also cancels the HTTP client's tasks: requests would hang
                task.cancel()
            await asyncio.wait(requesting)
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})
            for task in {loading, *ends, *helping}:
                task.cancel()
    _raise_reason(error, fleet, watching)
    log.info("stopped")


def _raise_reason(
    error: WatchError | LeadershipError | None, fleet: Fleet, watching: "asyncio.Task[Exception | None] | None"
) -> None:
    """Raises the error that has ended the operator, if any."""
    if fleet.outdated.is_set():
        raise WatchError(
            "the API server shows older versions than before, as after a restore from a backup: a new process has to "
            "list everything again"
        )
    if error is not None:
        raise error
    if watching is not None and not watching.cancelled() and (cause := watching.result()) is not None:
        raise WatchError(f"watching the API server failed for good: {cause}") from cause


async def _run_when_settled(reconciler: Reconciler, watches: Watches) -> NoReturn:
    await watches.until_settled()
    await reconciler.run()


async def _enable(able: asyncio.Event, reconciler: Reconciler, watches: Watches) -> None:
    """Sets `able` when this process knows all objects and follows them, so that it could lead."""
    await reconciler.loaded.wait()
    await watches.configs.is_requested.wait()
    able.set()


def _namespace_of_lease(namespace: str) -> str:
    if not namespace:
        raise AccessError("the namespace of the Lease is not known: give --namespace, or --no-leader-elect")
    return namespace


def _stop_on_signals(stop: asyncio.Event) -> None:
    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signum, stop.set)


async def _stop_on_signals_again(stop: asyncio.Event, kopf_started: asyncio.Event) -> None:
    """kopf replaces the handlers of signals by its own, which would cancel requests that are on their way."""
    await kopf_started.wait()
    _stop_on_signals(stop)


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
