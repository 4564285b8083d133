"""Agents for tests of the operator: they write a CpuNode's status when its spec changes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fake_api import FakeApi, JsonObject

Settings = Mapping[str, Any]
LONG_AGO: Final = "2026-01-01T00:00:00Z"


class FakeAgents:
    """The agents of all nodes. A test sets which of them are away, which settings they refuse and when they drain."""

    def __init__(self, api: FakeApi, *, cpus: int = 8) -> None:
        self.away: set[str] = set()
        self.refuse: Callable[[Settings], str] = lambda settings: ""  # why settings are refused
        self.drain: Callable[[JsonObject], bool] = lambda spec: bool(spec.get("outstanding"))
        self._api = api
        self._cpus = cpus

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._api.until(self._answer_all, seconds=3600)

    def answer(self, name: str, **status: Any) -> None:
        """Writes the status of a node's agent."""

        def write(node: JsonObject) -> None:
            operators = {field: value for field, value in (node.get("status") or {}).items() if field == "agent"}
            node["status"] = operators | self._status(node["spec"], **status)

        self._api.edit("cpunodes", name, write)

    def _answer_all(self) -> bool:
        for cpu_node in self._api.all("cpunodes"):
            spec, status = cpu_node["spec"], cpu_node.get("status") or {}
            name = cpu_node["metadata"]["name"]
            if name in self.away:
                continue
            refusal = self.refuse(spec["settings"])
            if refusal:
                answer = {"phase": "Failed", "appliedRevision": status.get("appliedRevision"), "why": refusal}
            else:
                phase = "Draining" if self.drain(spec) else "Ready"
                answer = {"phase": phase, "appliedRevision": spec["revision"], "why": ""}
            if any(status.get(key) != answer[key] for key in ("phase", "appliedRevision")):
                self.answer(name, **answer)
        return False

    def _status(
        self,
        spec: JsonObject,
        *,
        phase: str,
        appliedRevision: str | None,  # noqa: N803
        why: str = "",
        troubles: Mapping[str, str] | None = None,
        memory: Sequence[JsonObject] = (),
    ) -> JsonObject:
        applied = {
            "type": "ConfigApplied",
            "status": "False" if why else "True",
            "reason": "Refused" if why else "Applied",
        }
        status = {
            "phase": phase,
            "topology": {
                "arch": "x86_64",
                "smt": False,
                "counts": {"sockets": 1, "numaNodes": 1, "l3Groups": 1, "cores": self._cpus, "cpus": self._cpus},
            },
            "cpus": {
                "reserved": spec["settings"]["reservedCPUs"] or "0",
                "exclusive": "",
                "shared": "1",
                "counts": {"reserved": 1, "exclusive": 0, "shared": 1},
            },
            "conditions": [
                {**applied, "message": why, "lastTransitionTime": LONG_AGO},
                *(
                    {
                        "type": kind,
                        "status": "False",
                        "reason": "Injected",
                        "message": words,
                        "lastTransitionTime": LONG_AGO,
                    }
                    for kind, words in (troubles or {}).items()
                ),
            ],
        }
        optional = {"appliedRevision": appliedRevision, "memory": memory}
        return status | {name: value for name, value in optional.items() if value}
