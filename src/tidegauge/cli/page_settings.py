"""Settings of the live page that commands share."""

from __future__ import annotations

from typing import Final

PRICES_HELP: Final = (
    'TOML file with the $ per million tokens of each model, as in "my-model" = 1.5; the live page '
    "then shows what runs and loops cost in $."
)
RUNBOOKS_HELP: Final = (
    "Address that serves docs/runbooks, for links of the live page. TIDEGAUGE_RUNBOOKS can name "
    "it, too."
)
