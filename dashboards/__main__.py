"""``python -m dashboards``: write the files of the package ``tidegauge.dashboards``."""

from __future__ import annotations

from pathlib import Path

import tidegauge.dashboards
from dashboards.files import files

for name, text in files().items():
    path = Path(tidegauge.dashboards.__file__).parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
