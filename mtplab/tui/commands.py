"""The command palette's share of the table of actions."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from mtplab.tui.actions import ACTIONS, Action
from mtplab.tui.screens.bench import BenchScreen


class LabCommands(Provider):
    """Every action, found by its label or its sentence."""

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        bench = self._bench()
        for action in ACTIONS if bench is not None else ():
            yield DiscoveryHit(Content(_name(action)), partial(_do, bench, action), _name(action), action.help)

    async def search(self, query: str) -> Hits:
        """Those that match."""
        bench, matcher = self._bench(), self.matcher(query)
        for action in ACTIONS if bench is not None else ():
            score = matcher.match(f"{action.label} {action.help}")
            if score > 0:
                yield Hit(score, Content(_name(action)), partial(_do, bench, action), _name(action), action.help)

    def _bench(self) -> BenchScreen | None:
        return self.screen if isinstance(self.screen, BenchScreen) else None


def _name(action: Action) -> str:
    return f"{action.label}  {action.shown_key}"


async def _do(bench: BenchScreen | None, action: Action) -> None:
    if bench is not None:
        await bench.action_do(action.id)
