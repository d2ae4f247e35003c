"""The model of the report's tagger is read as plain data."""

from __future__ import annotations

import io
import os
import pickle

import numpy as np
import pytest

hanta = pytest.importorskip("HanTa.HanoverTagger")

from tidegauge.diagnose.report import word_clouds as module  # noqa: E402


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


def test_a_pickle_that_runs_code_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match=r"mkdir is no plain data"):
        module.read_plain(io.BytesIO(pickle.dumps([1, Harmful()])))
    assert list(tmp_path.iterdir()) == []
    assert module.read_plain(io.BytesIO(pickle.dumps({"a": [1.5, (2,)]}))) == {"a": [1.5, (2,)]}


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="the package itself needs NumPy 2"
)
def test_it_tags_as_the_package_does() -> None:
    own = hanta.HanoverTagger("morphmodel_en.pgz")
    text = "I will unlock the greenish drawers of the frobnicated desk , then check them"
    sentence = text.split()
    assert module._tagger().tag_sent(sentence) == own.tag_sent(sentence)
    assert module._tagger().strict is own.strict is False
