"""What judges said, read from a file."""

from __future__ import annotations

import pytest

from tidegauge.diagnose.competency_scores import CompetencyScore, read_scores
from tidegauge.errors import ConfigurationError


def test_scores_are_read_in_their_order_and_judged_again_means_instead() -> None:
    lines = [
        b'{"run":"r1","competency":"self_verification","score":2,"reason":"so","steps":[1,4]}',
        b"",
        b'{"run":"r2","competency":"self_verification","score":null}',
        b'{"run":"r1","competency":"self_verification","score":3,"steps":"none","reason":7}',
    ]
    assert read_scores(lines) == [
        CompetencyScore("r1", "self_verification", 3),
        CompetencyScore("r2", "self_verification", None),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "invalid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"run":"r1","score":3}', "competency is missing"),
        (b'{"run":1,"competency":"c","score":3}', "run is a number; use a string"),
        (b'{"run":"r1","competency":"c","score":"3"}', "score is a string; use a number"),
        (b'{"run":"r1","competency":"c","score":true}', "score is a boolean; use a number"),
    ],
)
def test_a_line_that_is_no_score_is_reported_by_its_place(line: bytes, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^judged:2: {reason}"):
        read_scores([b"", line], "judged")
