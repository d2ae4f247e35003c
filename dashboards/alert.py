"""What an alert is: a value, a threshold, and what its notification says and links to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from dashboards.queries import QueryScope, total
from tidegauge.catalog import RUNBOOKS, MetricDefinition
from tidegauge.dashboards.packaged_files import GRAFANA_URL

FLEET: Final = "tidegauge-fleet"
RUN_BOARD: Final = "tidegauge-run"
"""uids of dashboards."""

GROUP_NAME: Final = (
    "{{ with $labels.agent }}{{ . }}{{ else }}an unnamed agent{{ end }}"
    "{{ with $labels.task_group }} ({{ . }}){{ end }}"
)
INSTANCE: Final = "{{ $labels.instance }}"
COUNT: Final = '{{ $value | printf "%.0f" }}'
"""The value as a whole number: ``increase`` extrapolates."""

_VARIABLES: Final = ("agent", "task_group", "run")
"""Labels of alerts that dashboards have as variables."""


PanelNumbers: TypeAlias = Mapping[tuple[str, str], int]
"""The number of each panel, by the uid of its dashboard and its title."""


class Alert(NamedTuple):
    """A value and its threshold.

    Attributes:
        name: name of the alert in Prometheus and in Grafana.
        value: PromQL; the labels of its series are those of the alert.
        threshold: the alert is active while the value is greater.
        severity: ``critical``: act now; ``warning``: act today; ``info``: act when you have time.
        pending: how long the alert is active before it fires (Prometheus's ``for``).
        summary: one sentence, with ``$labels`` and ``$value`` as templates.
        runbook: file name of its runbook, without the suffix.
        panel: uid of the dashboard and title of the panel that show the value.
        keep_firing: how long the alert continues to fire afterwards (``keep_firing_for``), so that
            one that comes and goes sends one notification.
        details: more sentences, with templates that query Prometheus. Grafana's cannot.
    """

    name: str
    value: str
    threshold: float
    severity: str
    pending: str
    summary: str
    runbook: str
    panel: tuple[str, str]
    keep_firing: str = ""
    details: str = ""

    @property
    def expression(self) -> str:
        """The condition, for Prometheus."""
        return f"({self.value})\n> {self.threshold:g}"

    def annotations(self, panels: PanelNumbers) -> dict[str, str]:
        """The summary without details, and the links to the runbook and to the panel.

        The addresses in the links are defaults, which a user's replace.

        Raises:
            KeyError: no dashboard has the panel.
        """
        board, title = self.panel
        selected = "".join(
            f"{{{{ with $labels.{label} }}}}&var-{label}={{{{ . | urlquery }}}}{{{{ end }}}}"
            for label in _VARIABLES
            if label in self.value
        )
        panel = f"{board}?viewPanel={panels[self.panel]}{selected}"
        return {
            "summary": self.summary,
            "runbook_url": f"{RUNBOOKS}/{self.runbook}.md",
            "dashboard_url": f"{GRAFANA_URL}/d/{panel}",
            "panel": title,
        }


def counted(one: str, more: str) -> str:
    """The value as a whole number, and the words for one or for more.

    >>> counted("stop", "stops")
    '{{ $value | printf "%.0f" }} {{ if lt $value 1.5 }}stop{{ else }}stops{{ end }}'
    """
    return f"{COUNT} {{{{ if lt $value 1.5 }}}}{one}{{{{ else }}}}{more}{{{{ end }}}}"


def of_worst_run(
    metric: MetricDefinition,
    words: str,
    *,
    above: int = 0,
    cost: MetricDefinition | None = None,
) -> str:
    """A template that names the run of the alert's group with the highest value, if it is active.

    Args:
        metric: a metric of single runs.
        words: what happened; ``{run}`` and ``{value}`` are its id and its value.
        above: the value must be greater.
        cost: a metric of single runs: what it has cost the run so far, in tokens.
    """
    matchers = {"agent": "=%q", "task_group": "=%q"}
    series = QueryScope("", matchers).series(metric)
    worst = f"topk(1, {total(series, ['run'], operator='max')} > {above})"
    of_group = "$labels.agent $labels.task_group"
    spent = ""
    if cost is not None:
        tokens = total(QueryScope("", {**matchers, "run": "=%q"}).series(cost), operator="max")
        spent = (
            f'{{{{ with printf "{tokens}" {of_group} $run | query }}}}, which has cost '
            "{{ . | first | value | humanize }} tokens{{ end }}"
        )
    said = words.format(run="{{ $run }}", value="{{ . | first | value | humanize }}")
    return (
        f'{{{{ with printf "{worst}" {of_group} | query }}}}'
        '{{ $run := . | first | label "run" }}'
        f" {said}{spent}.{{{{ end }}}}"
    )
