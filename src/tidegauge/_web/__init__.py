"""Files that the live page and the report share: ``theme.css`` and ``theme.js``."""
