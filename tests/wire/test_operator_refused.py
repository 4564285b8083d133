"""Requests of the operator that the API server refuses or delays, or that are overtaken by other changes."""

from dataclasses import replace
from typing import Any

import pytest
from blind_operator import NEVER_FRESH, ONE_AFTER_ANOTHER, blind_operator

ELSEWHERE: dict[str, Any] = {"nodeSelector": {"matchLabels": {"no": "node"}}}
ROUNDS = 30


@pytest.mark.parametrize(
    ("refused", "code", "reason", "edit"),
    [
        ("PATCH cpunodes/n0", 403, "Forbidden", ELSEWHERE),
        ("DELETE cpunodes/n0", 403, "Forbidden", {**ELSEWHERE, "rollout": {"removalSeconds": 0}}),
        ("PATCH cpunodes/n0", 409, "Conflict", {"mode": "individual"}),  # a webhook may refuse so each time
        ("GET cpunodes/n0", 403, "Forbidden", {"mode": "individual"}),
    ],
    ids=["the time of a removal", "a removal", "a conflict without end", "a read after a lost answer"],
)
async def test_a_request_that_is_always_refused_is_tried_less_and_less_often(
    refused: str, code: int, reason: str, edit: dict[str, Any]
) -> None:
    async with blind_operator(NEVER_FRESH) as blind:
        blind.api.lose_answer("PATCH cpunodes/n0", times=refused.startswith("GET"))
        blind.api.fail(refused, code, reason, "no", times=100_000)
        blind.edit(**edit)
        await blind.api.until(lambda: blind.asked(refused) >= 3)
        before = blind.asked(refused)
        for _ in range(ROUNDS):
            blind.fleet.changed.set()
            await blind.api.until_idle()
        assert blind.asked(refused) - before < ROUNDS / 2


async def test_a_refused_removal_is_named_in_the_status() -> None:
    async with blind_operator(NEVER_FRESH) as blind:
        blind.api.fail("PATCH cpunodes/n0", 403, "Forbidden", "policy says no", times=100_000)
        blind.edit(**ELSEWHERE)

        def is_named() -> bool:
            status = blind.api.get("cpudriverconfigs", "all")["status"]
            return any("policy says no" in condition["message"] for condition in status["conditions"])

        await blind.api.until(is_named)


async def test_the_refused_status_of_one_config_delays_no_other_and_makes_the_operator_not_ready() -> None:
    async with blind_operator(replace(NEVER_FRESH, retry_first=60.0, retry_cap=60.0)) as blind:
        blind.api.fail("PATCH cpudriverconfigs/other/status", 422, "Invalid", "too long", times=100_000)
        blind.add_config("other", **ELSEWHERE)
        await blind.api.until(lambda: blind.asked("PATCH cpudriverconfigs/other/status"))
        await blind.api.until_idle()
        assert "the status of config other: " in blind.reconciler.ready()[0]
        blind.edit(mode="individual")
        await blind.api.until(lambda: blind.having("individual"))


async def test_a_node_that_vanishes_while_claims_are_listed_is_no_longer_written() -> None:
    async with blind_operator(NEVER_FRESH) as blind:
        await blind.stop()
        successor = await blind.successor().list()
        blind.api.edit("cpudriverconfigs", "all", lambda body: body["spec"].update(ELSEWHERE))
        successor.during_first("GET resourceclaims", lambda: successor.lose_node("n0"))
        successor.start()
        await blind.api.until(lambda: blind.asked("PATCH cpunodes/n1") == 2)  # created, and the time of its removal
        await successor.stop()
        assert blind.asked("PATCH cpunodes/n0") == 1


async def test_a_new_process_reads_all_nodes_that_it_does_not_know_before_it_writes() -> None:
    async with blind_operator(ONE_AFTER_ANOTHER) as blind:
        await blind.stop()
        successor = await blind.successor().list()
        blind.edit(mode="individual")
        spec = {"revision": "of-the-former-process", "settings": {"mode": "individual"}}
        blind.api.edit("cpunodes", "n2", lambda body: body["spec"].update(spec))  # which has used the budget
        successor.fleet.to_read_again |= {"n0", "n1", "n2"}
        successor.start()
        await blind.api.until(lambda: all(blind.asked(f"GET cpunodes/n{number}") for number in range(3)))
        await blind.api.until_idle()
        await successor.stop()
        assert blind.having("individual") == {"n2"}


async def test_labels_that_change_all_the_time_do_not_shorten_the_pauses_of_a_busy_api_server() -> None:
    async with blind_operator(ONE_AFTER_ANOTHER) as blind:
        changes = 0

        def change_label(_: object) -> bool:
            nonlocal changes
            changes += 1
            blind.label("n2", change=str(changes))
            return True

        message, what = "too many requests", "PATCH cpunodes/"
        blind.api.fail(what, 429, "TooManyRequests", message, retry_after=0, times=100_000, where=change_label)
        blind.edit(mode="individual")
        await blind.api.until(blind.reconciler.ready)
        assert message in blind.reconciler.ready()[0]
