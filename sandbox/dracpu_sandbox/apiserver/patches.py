"""Merge patches and JSON patches: what they make of an object. Nothing that is given is changed."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dracpu_sandbox.apiserver.refusal import Cause, RefusedError

JsonObject = dict[str, Any]


def merge_patched(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects are merged, everything else is replaced."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patched(result.get(name), value)
    return result


def json_patched(target: Any, patch: Any) -> Any:
    """RFC 6902; raises RefusedError when an operation cannot be done, and then nothing is."""
    if not isinstance(patch, list):
        raise RefusedError(400, "BadRequest", "a JSON patch is a list of operations")
    for step in patch:
        if not isinstance(step, Mapping) or not isinstance(step.get("path"), str):
            raise RefusedError(400, "BadRequest", f"this is no operation of a JSON patch: {step}")
        target = _done(target, step)
    return target


def _done(target: Any, step: Mapping[str, Any]) -> Any:
    path = _pointer(step["path"])
    match step.get("op"):
        case "add":
            return _added(target, path, _value(step), step)
        case "remove":
            return _removed(target, path, step)
        case "replace":
            return _replaced(target, path, _value(step), step)
        case "move":
            source = _pointer(str(step.get("from")))
            return _added(_removed(target, source, step), path, _at(target, source, step), step)
        case "copy":
            return _added(target, path, _at(target, _pointer(str(step.get("from"))), step), step)
        case "test":
            if _tested(target, path, step) != step.get("value"):
                raise _impossible(f"testing value {step['path']} failed: test failed")
            return target
    raise RefusedError(400, "BadRequest", f"a JSON patch has no operation {step.get('op')!r}")


def _pointer(text: str) -> tuple[str, ...]:
    if text and not text.startswith("/"):
        raise _impossible(f"{text!r} is no path: it must begin with /")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])


def _value(step: Mapping[str, Any]) -> Any:
    if "value" not in step:
        raise RefusedError(400, "BadRequest", f"the operation has no value: {step}")
    return step["value"]


def _at(target: Any, path: Sequence[str], step: Mapping[str, Any]) -> Any:
    for name in path:
        target = _child(target, name, step)
    return target


def _tested(target: Any, path: Sequence[str], step: Mapping[str, Any]) -> Any:
    """What a test compares with: something that is not there is null, as long as what it would stand in is there."""
    parent = _at(target, path[:-1], step)
    if path and isinstance(parent, dict):
        return parent.get(path[-1])
    return _at(target, path, step)


def _child(target: Any, name: str, step: Mapping[str, Any]) -> Any:
    if isinstance(target, dict) and name in target:
        return target[name]
    if isinstance(target, list):
        return target[_index(name, len(target), step)]
    raise _missing(step)


def _added(target: Any, path: Sequence[str], value: Any, step: Mapping[str, Any]) -> Any:
    if not path:
        return value
    name, rest = path[0], path[1:]
    if rest:
        return _with_child(target, name, _added(_child(target, name, step), rest, value, step), step)
    if isinstance(target, list):
        place = len(target) if name == "-" else _index(name, len(target) + 1, step)
        return [*target[:place], value, *target[place:]]
    if isinstance(target, dict):
        return {**target, name: value}
    raise _missing(step)


def _replaced(target: Any, path: Sequence[str], value: Any, step: Mapping[str, Any]) -> Any:
    """As kube-apiserver does it: a field that is not there is added, an item of a list must be there."""
    if path and isinstance(_at(target, path[:-1], step), dict):
        return _added(target, path, value, step)
    return _added(_removed(target, path, step), path, value, step)


def _removed(target: Any, path: Sequence[str], step: Mapping[str, Any]) -> Any:
    if not path:
        return None
    name, rest = path[0], path[1:]
    if rest:
        return _with_child(target, name, _removed(_child(target, name, step), rest, step), step)
    if isinstance(target, list):
        place = _index(name, len(target), step)
        return [*target[:place], *target[place + 1 :]]
    if isinstance(target, dict) and name in target:
        return {key: value for key, value in target.items() if key != name}
    raise _missing(step)


def _with_child(target: Any, name: str, child: Any, step: Mapping[str, Any]) -> Any:
    if isinstance(target, list):
        place = _index(name, len(target), step)
        return [*target[:place], child, *target[place + 1 :]]
    return {**target, name: child}


def _index(name: str, length: int, step: Mapping[str, Any]) -> int:
    if not name.isdecimal() or int(name) >= length:
        raise _missing(step)
    return int(name)


_REFUSED: Final = "the server rejected our request due to an error in our request"


def _missing(step: Mapping[str, Any]) -> RefusedError:
    path = step["path"]
    return _impossible(f"{step.get('op')} operation does not apply: doc is missing path: {path}: missing value")


def _impossible(why: str) -> RefusedError:
    return RefusedError(422, "Invalid", _REFUSED, causes=[Cause("patch", why, "UnexpectedServerResponse")])
