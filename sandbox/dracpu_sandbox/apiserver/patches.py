"""Merge patches and JSON patches. The functions return a new object and do not change their arguments."""

from typing import Any, Final

import jsonpatch
import jsonpointer

from dracpu_sandbox.apiserver.refusal import Cause, RefusedError, bad_request

_REFUSED: Final = "the server rejected our request due to an error in our request"


def merge_patched(target: Any, patch: Any) -> Any:
    """Applies a merge patch (RFC 7386): null removes, objects are merged, everything else is replaced."""
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
    """Applies a JSON patch (RFC 6902); raises RefusedError when one of its operations fails."""
    if not isinstance(patch, list):
        raise bad_request("a JSON patch must be a list of operations")
    try:
        return jsonpatch.apply_patch(target, patch)
    except jsonpatch.InvalidJsonPatch as error:
        raise bad_request(f"the JSON patch is not valid: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        cause = Cause("patch", str(error), "UnexpectedServerResponse")
        raise RefusedError(422, "Invalid", _REFUSED, causes=[cause]) from error
