"""Converts picked devices to status.allocation of a ResourceClaim."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.allocator import Pick
from dracpu_sandbox.scheduler.requests import Claim, DeviceClass


def allocation(
    claim: Claim,
    picks: Sequence[Pick],
    classes: Mapping[str, DeviceClass],
    node: str,
    new_share: Callable[[], str],
) -> JsonObject:
    """Returns the allocation of a claim. `new_share` makes the UUIDs of shares."""
    devices: JsonObject = {"results": [_result(pick, new_share) for pick in picks]}
    if config := [*_class_config(picks, classes), *_claim_config(claim, picks)]:
        devices["config"] = [_for_all(entry, claim, picks) for entry in config]
    found: JsonObject = {"devices": devices}
    if picks:
        of_node = {"key": "metadata.name", "operator": "In", "values": [node]}
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [of_node]}]}
    return found


def _result(pick: Pick, new_share: Callable[[], str]) -> JsonObject:
    device, wanted = pick.candidate.device, pick.wanted
    result: JsonObject = {
        "request": wanted.name,
        "driver": device.driver,
        "pool": device.pool,
        "device": device.name,
    }
    if wanted.tolerations:
        result["tolerations"] = list(wanted.tolerations)
    if device.shareable:
        result["shareID"] = new_share()
        if pick.candidate.consumed:
            result["consumedCapacity"] = {key: text for key, (_, text) in pick.candidate.consumed.items()}
    return result


def _class_config(picks: Sequence[Pick], classes: Mapping[str, DeviceClass]) -> Iterable[JsonObject]:
    requests: dict[str, list[str]] = {}
    for pick in picks:
        names = requests.setdefault(pick.wanted.device_class, [])
        if pick.wanted.name not in names:
            names.append(pick.wanted.name)
    for device_class, names in requests.items():
        for config in classes[device_class].config:
            yield {"source": "FromClass", "requests": list(names), **config}


def _for_all(config: JsonObject, claim: Claim, picks: Sequence[Pick]) -> JsonObject:
    """Returns the config; without names of requests if it applies to all requests of the claim."""
    named = set(config.get("requests") or ())
    chosen = {pick.wanted.name for pick in picks}
    for request in claim.requests:
        if not named & ({request.name} | {way.name for way in request.ways if way.name in chosen}):
            return config
    return {name: value for name, value in config.items() if name != "requests"}


def _claim_config(claim: Claim, picks: Sequence[Pick]) -> Iterable[JsonObject]:
    """Yields the claim's config, except for sub-requests that were not chosen."""
    chosen = {name for pick in picks for name in (pick.wanted.name, pick.wanted.name.partition("/")[0])}
    for config in claim.config:
        names = config.get("requests") or ()
        if not names or any(name in chosen for name in names):
            yield {"source": "FromClaim", **config}
