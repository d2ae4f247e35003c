"""The report: one self-contained HTML page about recorded runs.

:func:`~tidegauge.diagnose.report.page_data.contents` collects the data and
:func:`~tidegauge.diagnose.report.page_data.page` writes the page.
:mod:`~tidegauge.diagnose.report.word_clouds` computes its clouds and its map.

Needs ``pip install '.[report]'``.
"""

from tidegauge.errors import MissingExtraError

try:
    import HanTa  # noqa: F401 -- its absence raises the error below
    import networkx  # noqa: F401
    import plotly  # noqa: F401
    import sklearn  # noqa: F401
except ImportError as error:
    raise MissingExtraError(str(error.name), extra="report") from error
