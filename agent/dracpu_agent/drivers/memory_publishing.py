"""Decides by which devices a node's memory is published, and how much of it is reserved.

What is published changes later than the settings where devices go away, or lose the memory that they offered: these
stay published, closed to new claims, until the node has settled.
"""

from typing import Any, Final

from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.room import OfferSettings
from dracpu_api.settings import (
    CpuNodeSpec,
    MemorySettings,
    Publish,
    Settings,
    SettingsError,
    decode_settings,
    encode_settings,
)

_EVERYTHING: Final = OfferSettings(cpuless=True)  # what claims of devices that are not offered any more can still get


class Publishing:
    """The settings of memory, and those whose devices are published while the node settles."""

    def __init__(self) -> None:
        self.spec: CpuNodeSpec | None = None
        self.through: Publish | None = None  # by which devices memory is published now; None: by none
        self.offer_settings = _EVERYTHING  # of what is published
        self._former: Settings | None = None  # whose devices are published while the node settles

    @property
    def enabled(self) -> bool:
        """Whether the settings offer memory."""
        return self.spec is not None and self.spec.settings.memory_representation is not None

    @property
    def settling(self) -> bool:
        """True while former devices stay published, closed to new claims."""
        return self.spec is not None and self._former is not None

    def configure(self, spec: CpuNodeSpec) -> None:
        """Applies settings."""
        published = self._former or (self.spec.settings if self.spec else None)
        before = published.memory_representation if published else None
        goes_away = before not in (None, spec.settings.memory_representation)
        self._former = published if goes_away and spec.settle_seconds else None
        self.spec = spec
        self._follow()

    def settled(self) -> bool:
        """The former devices have been closed for long enough; False when the node was not settling."""
        was_settling, self._former = self.settling, None
        self._follow()
        return was_settling

    def deconfigure(self) -> None:
        """There are no settings any more."""
        self.spec = self._former = None
        self._follow()

    def state(self) -> Any:
        """The former settings as JSON; None while the node does not settle."""
        return None if self._former is None else encode_settings(self._former)

    def restore(self, state: Any) -> None:
        """Takes over the `state` of an earlier agent before settings are applied; one that cannot be read is ignored:
        then the former devices go away at once."""
        try:
            self._former = None if state is None else decode_settings(state)
        except SettingsError:
            self._former = None

    def _follow(self) -> None:
        published = None if self.spec is None else self._former or self.spec.settings
        self.through = None if published is None else published.memory_representation
        self.offer_settings = _EVERYTHING if published is None else _offer_settings_of(published.memory)


def _offer_settings_of(settings: MemorySettings) -> OfferSettings:
    if not settings.enabled:
        return _EVERYTHING
    sizes = None if settings.hugepages is None else frozenset(settings.hugepages)
    reserved = {
        Place(entry.numa_node, kind): size
        for entry in settings.reserved
        for name, size in entry.amounts
        if (kind := Kind.named(name)) is not None
    }
    return OfferSettings(sizes, reserved, settings.cpuless_nodes)
