"""An alert: when somebody has to look, who it is about, and where the steps to take are told."""

from __future__ import annotations

from typing import Final, NamedTuple

from tidegauge.dashboards.queries import Scope

__all__ = ["LATELY", "PROCESS", "RUNBOOKS", "WHERE", "Alert"]

RUNBOOKS: Final = "docs/runbooks"
"""Where the pages with the steps to take lie, unless they are served from elsewhere."""

LATELY: Final = Scope("10m")
"""How long a single event is news."""

PROCESS: Final = ("job", "instance")
"""What alerts on tidegauge itself tell apart."""

WHERE: Final = "{{ $labels.instance }}"
"""The process, in a summary."""


class Alert(NamedTuple):
    """A value and the line above which somebody has to look.

    Attributes:
        name: what it is called everywhere.
        value: PromQL; the labels of its series name what the alert is about.
        above: the line.
        severity: ``critical``, somebody now; ``warning``, today; ``info``, when there is time.
        held: for how long before it fires (Prometheus's ``for``).
        summary: one sentence, with ``$labels`` and ``$value`` as templates.
        runbook: the page with the steps to take, without its ending.
    """

    name: str
    value: str
    above: float
    severity: str
    held: str
    summary: str
    runbook: str

    @property
    def expression(self) -> str:
        """The condition, for Prometheus."""
        return f"({self.value})\n> {self.above:g}"

    def annotations(self, runbooks: str = RUNBOOKS) -> dict[str, str]:
        """What comes with it: the sentence, and the link to the steps to take."""
        return {
            "summary": self.summary,
            "runbook_url": f"{runbooks.rstrip('/')}/{self.runbook}.md",
        }
