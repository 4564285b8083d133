"""What an agent makes of what it finds at start: the checkpoint, and where that is damaged the CDI files."""

import structlog

from dracpu_agent.cdi.files import CdiDirectory, CdiFileError
from dracpu_agent.claims.ledger import LedgerError
from dracpu_agent.errors import SettingsRefusedError
from dracpu_agent.node import NodeState
from dracpu_agent.statefile import Loaded

log = structlog.get_logger("recovery")


def recover(node: NodeState, loaded: Loaded, cdi: CdiDirectory) -> str:
    """Fills the node's ledger; answers what was wrong with the checkpoint, empty when nothing was."""
    damage = loaded.damage
    if loaded.checkpoint is not None and loaded.checkpoint.node != node.node_name:
        damage = f"it is the checkpoint of node {loaded.checkpoint.node}"
    elif loaded.checkpoint is not None:
        try:
            node.restore(loaded.checkpoint)
        except SettingsRefusedError as error:  # the machine has changed; the API server's settings are to come
            log.warning("settings of the checkpoint refused", error=str(error))
    if loaded.checkpoint is None or damage:
        _adopt(node, cdi)
    _delete_leftovers(node, cdi)
    if damage:
        log.error("checkpoint damaged, rebuilt from its previous copy and the CDI files", damage=damage)
    log.info("state recovered", claims=len(node.claims), cpus=str(node.division.exclusive))
    return damage


def _adopt(node: NodeState, cdi: CdiDirectory) -> None:
    """Every claim that the kubelet was told of has a CDI file, and the file holds the claim's record."""
    for claim in cdi.read_all():
        if claim.ref.uid in node.claims:
            continue
        try:
            node.adopt(claim)
        except LedgerError as error:
            log.error("claim of a CDI file not adopted", uid=claim.ref.uid, error=str(error))


def _delete_leftovers(node: NodeState, cdi: CdiDirectory) -> None:
    """Files of claims that were given up half-way."""
    for uid in cdi.uids() - set(node.claims):
        try:
            cdi.delete(uid)
        except CdiFileError as error:  # nothing can use the file: its claim is in no ledger
            log.warning("CDI file left behind", error=str(error))
