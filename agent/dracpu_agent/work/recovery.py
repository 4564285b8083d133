"""What an agent makes of what it finds at start: the checkpoint, and where that is damaged the CDI files."""

from collections.abc import Iterable

import structlog

from dracpu_agent.cdi.files import CdiDirectory, CdiFileError
from dracpu_agent.checkpoint.statefile import Loaded
from dracpu_agent.claims.ledger import HeldClaim, LedgerError
from dracpu_agent.errors import SettingsRefusedError
from dracpu_agent.node import NodeState

log = structlog.get_logger("recovery")


def recover(node: NodeState, loaded: Loaded, cdi: CdiDirectory) -> str:
    """Fills the node's ledger; answers what was wrong with the checkpoint, empty when nothing was.

    Every claim that the kubelet was told of has a CDI file that holds its record, and these are never older than the
    previous copy of a damaged checkpoint: there they come first, and the copy adds what they lack (all of it after a
    reboot, which clears the files).
    """
    damage, checkpoint = loaded.damage, loaded.checkpoint
    if checkpoint is not None and checkpoint.node != node.node_name:
        damage, checkpoint = f"it is the checkpoint of node {checkpoint.node}", None
    if damage or checkpoint is None:
        _adopt(node, cdi.read_all(), "its CDI file")
    if checkpoint is not None:
        _adopt(node, checkpoint.claims, "the checkpoint")
        try:
            node.resume(checkpoint)
        except SettingsRefusedError as error:  # the machine has changed; the API server's settings are to come
            log.warning("settings of the checkpoint refused", error=str(error))
    _delete_leftovers(node, cdi)
    if damage:
        log.error("checkpoint damaged, rebuilt from the CDI files and its previous copy", damage=damage)
    log.info("state recovered", claims=len(node.claims), cpus=str(node.division.exclusive))
    return damage


def _adopt(node: NodeState, claims: Iterable[HeldClaim], source: str) -> None:
    for claim in claims:
        if claim.ref.uid in node.claims:
            continue
        try:
            node.adopt(claim)
        except LedgerError as error:
            log.error("claim not recovered", uid=claim.ref.uid, source=source, error=str(error))


def _delete_leftovers(node: NodeState, cdi: CdiDirectory) -> None:
    """Files of claims that were given up half-way."""
    try:
        cdi.delete_unfinished()
        for uid in cdi.uids() - set(node.claims):
            cdi.delete(uid)
    except CdiFileError as error:  # nothing can use the files: their claims are in no ledger
        log.warning("CDI files left behind", error=str(error))
