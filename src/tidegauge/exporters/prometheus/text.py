"""Writes the text of a scrape directly from the families.

prometheus_client writes it, too, one label at a time: 8 µs per series, which with hundreds of
agents takes a tenth of a second of the interpreter at every scrape. This takes a tenth of
that, and a test verifies that the text is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from prometheus_client.utils import floatToGoString

from tidegauge.exporters.reading import Family, cumulative
from tidegauge.streaming_metrics.buckets import Buckets, Exemplar

_number: Final = lru_cache(maxsize=4_096)(floatToGoString)


def write_text(families: Iterable[Family], *, openmetrics: bool = False) -> bytes:
    """The families in Prometheus's text format 0.0.4, or in OpenMetrics 1.0 with exemplars.

    >>> from tidegauge import catalog
    >>> family = Family(catalog.EVICTED_RUNS, [((), 2.0)])
    >>> print(write_text([family]).decode().splitlines()[-1])
    tidegauge_evicted_runs_total 2.0
    """
    lines: list[str] = []
    for metric, rows, exemplars in families:
        name = metric.name
        shown = name.removesuffix("_total") if openmetrics else name
        lines.append(f"# HELP {shown} {metric.help}\n# TYPE {shown} {metric.kind}\n")
        template = ",".join([f'{label}="%s"' for label in metric.labels])
        for values, value in rows:
            labels = template % tuple([_escaped(text) for text in values])
            if isinstance(value, Buckets):
                buckets = cumulative(value)
                shown_exemplars = value.exemplars if openmetrics else {}
                lines += [
                    f'{name}_bucket{{{labels},le="{bound}"}} {_number(count)}'
                    f"{_exemplar(shown_exemplars.get(index))}\n"
                    for index, (bound, count) in enumerate(buckets)
                ]
                lines.append(f"{name}_count{{{labels}}} {_number(buckets[-1][1])}\n")
                lines.append(f"{name}_sum{{{labels}}} {_number(value.total)}\n")
            elif labels:
                exemplar = exemplars.get(values) if openmetrics and exemplars else None
                lines.append(f"{name}{{{labels}}} {_number(value)}{_exemplar(exemplar)}\n")
            else:
                lines.append(f"{name} {_number(value)}\n")
    if openmetrics:
        lines.append("# EOF\n")
    return "".join(lines).encode()


def _exemplar(exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return ""
    value = _number(float(exemplar.value))
    return f' # {{trace_id="{exemplar.trace_id}"}} {value} {exemplar.time:.3f}'


@lru_cache(maxsize=4_096)
def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
