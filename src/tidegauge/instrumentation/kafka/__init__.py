"""The gateway of a fleet: spans that were received go to a topic, to be measured elsewhere.

``messages`` is the form in which they travel, ``written`` and ``parsed`` that of one span;
``gateway`` produces them.
"""
