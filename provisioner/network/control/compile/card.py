"""What a DPU's agent is to bring its card to, as that is told of it. Pure."""

from __future__ import annotations

from provisioner.api import Server
from provisioner.api.network.card import CardConfiguration


def card_configuration(dpu: Server) -> CardConfiguration | None:
    """None where nothing is declared, or nobody has accepted the card: it stays as it is."""
    card = dpu.spec.dpu
    if card is None or not _is_ours(dpu):
        return None
    if card.host_access is None and not card.settings:
        return None
    return CardConfiguration(
        server=card.host_ref,
        host_access=card.host_access,
        settings=tuple(sorted(card.settings, key=lambda each: each.name)),
    )


def _is_ours(dpu: Server) -> bool:
    """Whether somebody has accepted the card, and nobody takes it out."""
    return dpu.spec.acceptance == "Accepted" and dpu.metadata.deletion_timestamp is None
