"""A real Postgres, which tests reach over a Unix socket."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.processes import PATIENCE, stopped_in_the_end, wait_until_ready
from support.requirements import missing

__all__ = ["Postgres", "postgres", "program"]

_DEBIAN = "/usr/lib/postgresql"
_UNPRIVILEGED = ("postgres", "nobody")  # Postgres refuses to run as root


class Postgres:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, user: str) -> None:
        self.process = process
        self._folder = folder
        self._user = user
        self._numbers = itertools.count()

    def url(self, database: str) -> str:
        """The URL of a database."""
        host = urllib.parse.quote(str(self._folder), safe="")
        return f"postgresql://{self._user}@{host}/{database}"

    def create(self) -> str:
        """The URL of a new database."""
        import psycopg

        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a Postgres in a folder that is removed in the end."""
    import pwd

    initdb, server = program("initdb"), program("postgres")
    with tempfile.TemporaryDirectory(prefix="tg-pg-") as name:  # short: a socket's path has a limit
        folder = Path(name)
        account: Any = {}
        user = pwd.getpwuid(os.getuid()).pw_name
        if os.getuid() == 0:
            user = next(one for one in _UNPRIVILEGED if _is_user(one))
            account = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        data = folder / "data"
        made = subprocess.run(
            [initdb, "-D", data, "-U", user, "-A", "trust", "-E", "UTF8", "--no-sync"],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
            **account,
        )
        assert made.returncode == 0, made.stderr
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [server, "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"],
                cwd="/",
                stdout=output,
                stderr=subprocess.STDOUT,
                **account,
            )
        with stopped_in_the_end(process):
            running = Postgres(process, folder, user)
            wait_until_ready(process, log, lambda: _answers(running))
            yield running


def _answers(server: Postgres) -> bool:
    import psycopg

    try:
        psycopg.connect(server.url("postgres")).close()
    except psycopg.OperationalError:
        return False
    return True


def program(name: str) -> str:
    """A program of Postgres, on the path or where Debian has it."""
    versions = sorted(Path(_DEBIAN).glob("*/bin"), key=lambda path: path.parent.name, reverse=True)
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, versions)])
    found = shutil.which(name, path=path)
    if found is None:
        missing(f"no program {name}; install Postgres: apt-get install postgresql")
    return found


def _is_user(name: str) -> bool:
    import pwd

    with contextlib.suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False
