"""The ready extractors, a kind of agent each. Pass them to ``configure(extractors=[...])``.

======================== ============================================ ================= ==========
extractor                place                                        exits             reach
======================== ============================================ ================= ==========
:class:`WebPages`        the page's URL                               its links         adjacent
:class:`Files`           the file or folder, or the search            paths shown       anywhere
:class:`Documents`       the document's id, or the search             ids mentioned     anywhere
:class:`CodingAgent`     as Files; its to-do lists and tests, too     paths shown       anywhere
:class:`TodoList`        none; its entries are tasks, ticked or open  none              no opinion
======================== ============================================ ================= ==========

All of them read at most :data:`TEXT_LIMIT` characters of a result, report nothing for a call that
failed (but for the tests that it ran), and keep no state. Yours can be any object of the protocol
:class:`~tidegauge.runs.extraction.Extractor`, or functions wrapped by
:func:`~tidegauge.runs.extraction.extractor`.
"""

from tidegauge.instrumentation.extractors.coding_agent import CodingAgent
from tidegauge.instrumentation.extractors.contents import TEXT_LIMIT
from tidegauge.instrumentation.extractors.documents import Documents
from tidegauge.instrumentation.extractors.files import Files
from tidegauge.instrumentation.extractors.todo_list import TodoList
from tidegauge.instrumentation.extractors.web_pages import WebPages
from tidegauge.runs.extraction import Extractor, Observation, extractor

__all__ = [
    "TEXT_LIMIT",
    "CodingAgent",
    "Documents",
    "Extractor",
    "Files",
    "Observation",
    "TodoList",
    "WebPages",
    "extractor",
]
