"""Every way out. Each reads the engine's snapshots; nothing on the step path knows of them.

:mod:`~tidegauge.exporters.prometheus`: metrics, pulled by whoever scrapes.
"""
