"""The report: one page about recorded runs that needs nothing but itself.

:func:`~tidegauge.diagnose.report.contents.contents` gathers what is shown,
:func:`~tidegauge.diagnose.report.page.page` makes the page of it. Between them stand
:mod:`~tidegauge.diagnose.report.comparison` (groups and tasks beside each other),
:mod:`~tidegauge.diagnose.report.word_clouds`, :mod:`~tidegauge.diagnose.report.action_map` and
:mod:`~tidegauge.diagnose.report.state_graph`.

Needs ``pip install 'tidegauge[report]'``.
"""

from tidegauge.errors import MissingExtraError

try:
    import networkx  # noqa: F401 -- looked for, so that its absence says what to install
    import plotly  # noqa: F401
    import sklearn  # noqa: F401
except ImportError as error:
    raise MissingExtraError(str(error.name), extra="report") from error
